"""Records which claim holds which CPUs, and refuses to give one CPU to two claims.

A claim is *held* from Prepare to Unprepare, and *lingering* while containers of an unprepared claim still run: its
CPUs are then neither free nor shared, and Prepare of the same claim revives it.

A claim is *frozen* when this agent cannot decode its record, because a newer agent wrote it. It keeps its record and
every CPU that the record or its CDI file names, and its containers stay where they run; only Unprepare ends it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dracpu_agent.claims.grant import ClaimRef, CpuGrant
from dracpu_agent.errors import ClaimError
from dracpu_agent.placement.proof import CdiDevice
from dracpu_api import names
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError, union
from dracpu_api.errors import DriverError


class ClaimFrozenError(ClaimError):
    """The kubelet prepares a claim whose record this agent cannot decode."""


class LedgerError(DriverError):
    """Two claims would hold the same CPU: a defect of this driver, stopped before it does harm."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """Why a claim's record cannot be decoded, and what must be kept of the claim."""

    reason: str
    record: Any = None  # as it was read; None: the claim is known from its CDI file alone
    devices: tuple[CdiDevice, ...] = ()  # of its CDI file


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim and the CPUs granted to it."""

    ref: ClaimRef
    grants: tuple[CpuGrant, ...]
    consumers: frozenset[str]
    digest: str
    lingering: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)  # fields of its record, from a newer agent
    frozen: Frozen | None = field(default=None, hash=False)  # then the grants are what can be read of them

    @property
    def namespace(self) -> str:
        """The claim's namespace; only pods of this namespace can use the claim."""
        return self.ref.namespace

    @property
    def has_cdi_file(self) -> bool:
        """Whether this agent writes its CDI file. The kubelet creates no container with a lingering claim before it
        prepares the claim again, and the file of a frozen claim contains more than this agent can write."""
        return not self.lingering and self.frozen is None

    @property
    def cpus(self) -> CpuSet:
        """All CPUs of all its requests."""
        return union(grant.cpus for grant in self.grants)

    @property
    def requests(self) -> tuple[str, ...]:
        """The names of its requests, in the order of the allocation."""
        return tuple(dict.fromkeys(grant.base_request for grant in self.grants))

    def cpus_of(self, request: str) -> CpuSet:
        """The CPUs of one request."""
        return union(grant.cpus for grant in self.grants if grant.base_request == request)

    def uses(self) -> Iterator[tuple[str | None, CpuSet]]:
        """The units that a container can get: the claim if it has one request, otherwise each request separately."""
        if len(self.requests) == 1:
            yield None, self.cpus
        else:
            for request in self.requests:
                yield request, self.cpus_of(request)

    def cdi_devices(self) -> Iterator[CdiDevice]:
        """The CDI device of each use."""
        if self.frozen is not None and self.frozen.devices:
            yield from self.frozen.devices
            return
        for request, cpus in self.uses():
            variable = names.CPUS.variable(self.ref.uid, request)
            yield CdiDevice(names.CPUS.cdi_device(self.ref.uid, request), ((variable, str(cpus)),))

    def by_cdi_device(self) -> Iterator[tuple[str, CpuSet]]:
        """Each CDI device with the CPUs on which its containers run."""
        if self.frozen is not None and self.frozen.devices:
            for device in self.frozen.devices:
                yield device.name, cpus_named_by(device) or self.cpus
            return
        for request, cpus in self.uses():
            yield names.CPUS.cdi_device(self.ref.uid, request), cpus


def cpus_named_by(device: CdiDevice) -> CpuSet:
    """The CPUs in the variables of a CDI device; none if it names none."""
    found = EMPTY
    for _, value in device.variables:
        with suppress(CpuSetError):
            found |= CpuSet.parse(value)
    return found


class Ledger:
    """Claim UID -> held claim. Two claims never share a CPU, except that CPUs named in the record of a frozen claim may
    belong to another claim, too."""

    def __init__(self, claims: Iterable[HeldClaim] = ()) -> None:
        self._claims: dict[str, HeldClaim] = {}
        self._by_cdi_device: dict[str, dict[str, CpuSet]] = {}
        self._held = EMPTY
        for claim in claims:
            self.take(claim)

    @property
    def held(self) -> CpuSet:
        """Every CPU that a claim holds, lingering ones included."""
        return self._held

    @property
    def claims(self) -> Mapping[str, HeldClaim]:
        """The claims by UID; read only."""
        return self._claims

    def find(self, uid: str) -> HeldClaim | None:
        """The claim, if it is held; raises ClaimFrozenError when its record cannot be decoded."""
        claim = self._claims.get(uid)
        if claim is not None and claim.frozen is not None:
            raise ClaimFrozenError(
                f"claim {claim.ref} was prepared by a newer agent, and this agent cannot read its record "
                f"({claim.frozen.reason}): install the newer version again, or delete the pods that use the claim"
            )
        return claim

    def shares(self) -> Iterator[tuple[str, CpuSet]]:
        """Each device name with CPUs held through it. CPUs of lingering claims have the name "", because these claims
        are usually deallocated, so that the scheduler does not count them any more."""
        for claim in self._claims.values():
            for grant in claim.grants:
                yield "" if claim.lingering else grant.device, grant.cpus

    def by_cdi_device(self) -> Iterator[tuple[str, CpuSet]]:
        """Each CDI device of every claim with the CPUs on which its containers run."""
        for devices in self._by_cdi_device.values():
            yield from devices.items()

    def take(self, claim: HeldClaim) -> None:
        """Adds a claim."""
        if claim.ref.uid in self._claims:
            raise LedgerError(f"claim {claim.ref} ({claim.ref.uid}) is in the ledger already")
        taken = EMPTY
        for grant in claim.grants:
            if claim.frozen is None and (not grant.cpus or not grant.cpus.isdisjoint(self._held | taken)):
                raise LedgerError(f'claim {claim.ref}: CPUs "{grant.cpus}" of request {grant.request} are not free')
            taken |= grant.cpus
        self._claims[claim.ref.uid] = claim
        self._by_cdi_device[claim.ref.uid] = dict(claim.by_cdi_device())
        self._held |= taken

    def release(self, uid: str) -> HeldClaim:
        """Removes a claim, so that its CPUs are free."""
        claim = self._claims.pop(uid)
        del self._by_cdi_device[uid]
        self._held = union(other.cpus for other in self._claims.values())  # a frozen claim may name the same CPUs
        return claim

    def set_lingering(self, uid: str, *, lingering: bool) -> HeldClaim:
        """Marks a claim as lingering, or revives it."""
        self._claims[uid] = replace(self._claims[uid], lingering=lingering)
        return self._claims[uid]

    def set_consumers(self, uid: str, consumers: frozenset[str]) -> HeldClaim:
        """Replaces the pods that may use a claim."""
        self._claims[uid] = replace(self._claims[uid], consumers=consumers)
        return self._claims[uid]

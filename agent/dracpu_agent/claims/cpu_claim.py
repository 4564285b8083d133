"""Claims of the driver dra.cpu: the CPUs that each was granted, and the ledger that gives no CPU to two of them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from dracpu_agent.claims.fields import Fields, RecordError
from dracpu_agent.claims.grant import Grant
from dracpu_agent.claims.held import HeldClaim, Variables
from dracpu_agent.claims.ledger import Ledger, LedgerError
from dracpu_agent.placement.proof import CdiDevice
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError, union
from dracpu_api.names import CPUS, DriverNames

_NAMES_OF_CPUS: Final = ("cpus", "cpuset")  # fields of records


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuGrant(Grant):
    """CPUs given to one allocation result of a claim."""

    cpus: CpuSet

    def data(self) -> dict[str, Any]:
        """What the owner of the claim sees in its status."""
        return {"cpuset": str(self.cpus)}

    def fields(self) -> dict[str, Any]:
        """The driver's own fields in the record of the claim."""
        return {"cpus": str(self.cpus)}


@dataclass(frozen=True, slots=True)
class CpuClaim(HeldClaim[CpuGrant]):
    """A claim and the CPUs granted to it."""

    names: ClassVar[DriverNames] = CPUS
    kind: ClassVar[str] = "cpu"

    @property
    def cpus(self) -> CpuSet:
        """All CPUs of all its requests."""
        return cpus_in(self.grants)

    @property
    def content(self) -> str:
        """What the claim holds, for messages."""
        return f"CPUs {self.cpus or 'unknown'}"

    def cpus_of(self, request: str) -> CpuSet:
        """The CPUs of one request."""
        return cpus_in(self.grants_of(request))

    def text(self, grants: Sequence[CpuGrant]) -> str:
        """The CPUs of some of its grants."""
        return str(cpus_in(grants))

    @property
    def size(self) -> float:
        """The number of its CPUs."""
        return len(self.cpus)

    def variables(self, request: str | None, grants: Sequence[CpuGrant]) -> Variables:
        """The variable with the CPUs of one of its uses."""
        return ((self.names.variable(self.ref.uid, request), str(cpus_in(grants))),)

    def by_cdi_device(self) -> Iterator[tuple[str, CpuSet]]:
        """Each CDI device with the CPUs on which its containers run."""
        if self.frozen is not None and self.frozen.devices:
            for device in self.frozen.devices:
                yield device.name, _named_by(device) or self.cpus
            return
        for request, grants in self.uses():
            yield self.names.cdi_device(self.ref.uid, request), cpus_in(grants)

    @classmethod
    def decode_grant(cls, request: str, pool: str, device: str, share_id: str | None, fields: Fields) -> CpuGrant:
        """Reads the CPUs of a grant's record; raises RecordError."""
        try:
            cpus = CpuSet.parse(fields.take("cpus", str))
        except CpuSetError as error:
            raise RecordError(f"a grant has invalid CPUs: {error}") from error
        if not cpus:
            raise RecordError("a grant has no CPUs")
        return CpuGrant(request=request, pool=pool, device=device, share_id=share_id, cpus=cpus, unknown=fields.left)

    @classmethod
    def salvage(cls, record: object, devices: Iterable[CdiDevice], others: Iterable[CpuGrant]) -> tuple[CpuGrant, ...]:
        """Grants for every CPU that can be found."""
        grants: list[CpuGrant] = []
        found = EMPTY
        for grant in _readable_grants(record):
            grants.append(replace(grant, cpus=grant.cpus - found))
            found |= grant.cpus
        left = union([*_named_cpus(record), *map(_named_by, devices), cpus_in(others)]) - found
        grants.append(CpuGrant(request="", pool="", device="", share_id=None, cpus=left))
        return tuple(grant for grant in grants if grant.cpus)


class CpuLedger(Ledger[CpuClaim]):
    """Two claims never share a CPU, except that CPUs named in the record of a frozen claim may belong to another claim,
    too."""

    def __init__(self) -> None:
        super().__init__()
        self._by_cdi_device: dict[str, dict[str, CpuSet]] = {}
        self._held = EMPTY

    @property
    def held(self) -> CpuSet:
        """Every CPU that a claim holds, lingering ones included."""
        return self._held

    def shares(self) -> Iterator[tuple[str, CpuSet]]:
        """Each device name with CPUs held through it. CPUs of lingering claims have the name "", because these claims
        are usually deallocated, so that the scheduler does not count them any more."""
        for claim in self.claims.values():
            for grant in claim.grants:
                yield "" if claim.lingering else grant.device, grant.cpus

    def by_cdi_device(self) -> Iterator[tuple[str, CpuSet]]:
        """Each CDI device of every claim with the CPUs on which its containers run."""
        for devices in self._by_cdi_device.values():
            yield from devices.items()

    def take(self, claim: CpuClaim) -> None:
        """Adds a claim."""
        taken = EMPTY
        for grant in claim.grants:
            if claim.frozen is None and (not grant.cpus or not grant.cpus.isdisjoint(self._held | taken)):
                raise LedgerError(f'claim {claim.ref}: CPUs "{grant.cpus}" of request {grant.request} are not free')
            taken |= grant.cpus
        super().take(claim)
        self._by_cdi_device[claim.ref.uid] = dict(claim.by_cdi_device())
        self._held |= taken

    def release(self, uid: str) -> CpuClaim:
        """Removes a claim, so that its CPUs are free."""
        claim = super().release(uid)
        del self._by_cdi_device[uid]
        self._held = union(other.cpus for other in self.claims.values())  # a frozen claim may name the same CPUs
        return claim


def cpus_in(grants: Iterable[CpuGrant]) -> CpuSet:
    """All CPUs of some grants."""
    return union(grant.cpus for grant in grants)


def _named_by(device: CdiDevice) -> CpuSet:
    """The CPUs in the variables of a CDI device; none if it names none."""
    return union(_cpus(value) for _, value in device.variables)


def _readable_grants(record: object) -> Iterator[CpuGrant]:
    grants = record.get("grants") if isinstance(record, dict) else None
    for fields in grants if isinstance(grants, list) else ():
        if isinstance(fields, dict):
            texts = {name: value for name, value in fields.items() if isinstance(value, str)}
            yield CpuGrant(
                request=texts.get("request", ""),
                pool=texts.get("pool", ""),
                device=texts.get("device", ""),
                share_id=texts.get("shareID") or None,
                cpus=_cpus(fields.get("cpus")),
            )


def _named_cpus(record: object) -> Iterator[CpuSet]:
    """The CPUs in every field of such a name, at any depth."""
    left = [record]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield from (_cpus(value[name]) for name in _NAMES_OF_CPUS if name in value)
            left += value.values()
        elif isinstance(value, list):
            left += value


def _cpus(value: object) -> CpuSet:
    with suppress(CpuSetError):
        return CpuSet.parse(value) if isinstance(value, str) else EMPTY
    return EMPTY

"""Claims of the driver dra.cpu: the CPUs that each was granted, and the ledger that gives no CPU to two of them.

Where devices of CPUs offer memory, too, a grant may have memory beside its CPUs. What is promised of the memory is the
concern of the driver of memory, which reads it here; the modules of memory are loaded only for such a grant.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dracpu_agent.claims.fields import Fields, RecordError
from dracpu_agent.claims.grant import Grant
from dracpu_agent.claims.held import HeldClaim, Variables
from dracpu_agent.claims.ledger import Ledger, LedgerError
from dracpu_agent.placement.proof import CdiDevice
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError, union
from dracpu_api.names import CPUS, MEMORY, DriverNames

if TYPE_CHECKING:
    from dracpu_agent.claims.memory_sizes import MemorySizes
    from dracpu_agent.memory.kinds import Place

_NAMES_OF_CPUS: Final = ("cpus", "cpuset")  # fields of records


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuGrant(Grant):
    """CPUs given to one allocation result of a claim."""

    cpus: CpuSet
    memory: "MemorySizes | None" = None  # None: CPUs alone

    def data(self) -> dict[str, Any]:
        """What the owner of the claim sees in its status."""
        return {"cpuset": str(self.cpus), **(self.memory.data() if self.memory else {})}

    def fields(self) -> dict[str, Any]:
        """The driver's own fields in the record of the claim."""
        return {"cpus": str(self.cpus), **({"memory": self.memory.records()} if self.memory else {})}


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
    def memory(self) -> "MemorySizes | None":
        """The memory of all its requests; None for a claim of CPUs alone."""
        return _memory_in(self.grants)

    @property
    def content(self) -> str:
        """What the claim holds, for messages."""
        cpus = f"CPUs {self.cpus or 'unknown'}"
        return f"{cpus} and {self.memory}" if self.memory else cpus

    @property
    def serves_one_pod(self) -> bool:
        """True for a claim with memory: no cgroup limits two pods together. Of a frozen claim, it is not known which
        pods it is for."""
        return self.frozen is None and self.memory is not None

    def cpus_of(self, request: str) -> CpuSet:
        """The CPUs of one request."""
        return cpus_in(self.grants_of(request))

    def text(self, grants: Sequence[CpuGrant]) -> str:
        """The CPUs of some of its grants, and their memory."""
        return ", ".join(str(part) for part in (cpus_in(grants), _memory_in(grants)) if part)

    @property
    def size(self) -> float:
        """The number of its CPUs."""
        return len(self.cpus)

    def variables(self, request: str | None, grants: Sequence[CpuGrant]) -> Variables:
        """The variable with the CPUs of one of its uses, and those with its memory."""
        memory, uid = _memory_in(grants), self.ref.uid
        cpus = (self.names.variable(uid, request), str(cpus_in(grants)))
        return (cpus, *(memory.variables(MEMORY.variable(uid, request)) if memory else ()))

    def by_cdi_device(self) -> Iterator[tuple[str, CpuSet]]:
        """Each CDI device with the CPUs on which its containers run."""
        if self.frozen is not None and self.frozen.devices:
            for device in self.frozen.devices:
                yield device.name, _named_by(device) or self.cpus
            return
        for request, grants in self.uses():
            yield self.names.cdi_device(self.ref.uid, request), cpus_in(grants)

    def memory_by_cdi_device(self) -> "Iterator[tuple[str, Mapping[Place, int]]]":
        """Each CDI device that gives a container memory, and the bytes by place."""
        if self.frozen is not None and self.frozen.devices:
            for device in self.frozen.devices:
                if memory := _memory_named_by((device,)):
                    yield device.name, memory
            return
        for request, grants in self.uses():
            if memory_of_use := _memory_in(grants):
                yield self.names.cdi_device(self.ref.uid, request), memory_of_use.by_place()

    @classmethod
    def decode_grant(cls, request: str, pool: str, device: str, share_id: str | None, fields: Fields) -> CpuGrant:
        """Reads the CPUs of a grant's record, and its memory if it has any; raises RecordError."""
        try:
            cpus = CpuSet.parse(fields.take("cpus", str))
        except CpuSetError as error:
            raise RecordError(f"a grant has invalid CPUs: {error}") from error
        if not cpus:
            raise RecordError("a grant has no CPUs")
        memory = None
        if "memory" in fields.left:
            from dracpu_agent.claims.memory_sizes import MemorySizes  # noqa: PLC0415 - agents of CPUs alone do not load it

            memory = MemorySizes.decode(fields.take("memory", list))
        return CpuGrant(
            request=request,
            pool=pool,
            device=device,
            share_id=share_id,
            cpus=cpus,
            memory=memory or None,
            unknown=fields.left,
        )

    @classmethod
    def salvage(cls, record: object, devices: Iterable[CdiDevice], others: Iterable[CpuGrant]) -> tuple[CpuGrant, ...]:
        """Grants for every CPU that can be found, and for all memory."""
        others, devices = tuple(others), tuple(devices)
        grants: list[CpuGrant] = []
        found = EMPTY
        for grant in _readable_grants(record):
            grants.append(replace(grant, cpus=grant.cpus - found))
            found |= grant.cpus
        left = union([*_named_cpus(record), *map(_named_by, devices), cpus_in(others)]) - found
        memory = _memory_beyond(grants, others, devices)
        grants.append(CpuGrant(request="", pool="", device="", share_id=None, cpus=left, memory=memory))
        return tuple(grant for grant in grants if grant.cpus or grant.memory)


class CpuLedger(Ledger[CpuClaim]):
    """Two claims never share a CPU, except that CPUs named in the record of a frozen claim may belong to another claim,
    too."""

    def __init__(self) -> None:
        super().__init__()
        self._by_cdi_device: dict[str, dict[str, CpuSet]] = {}
        self._with_memory: dict[str, None] = {}  # UIDs in the order in which the claims were taken
        self._held = EMPTY

    @property
    def held(self) -> CpuSet:
        """Every CPU that a claim holds, lingering ones included."""
        return self._held

    def with_memory(self) -> Iterator[CpuClaim]:
        """The claims that have memory beside their CPUs, which may be few of many."""
        return (self.claims[uid] for uid in self._with_memory)

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
        if claim.memory:
            self._with_memory[claim.ref.uid] = None
        self._held |= taken

    def release(self, uid: str) -> CpuClaim:
        """Removes a claim, so that its CPUs are free."""
        claim = super().release(uid)
        del self._by_cdi_device[uid]
        self._with_memory.pop(uid, None)
        self._held = union(other.cpus for other in self.claims.values())  # a frozen claim may name the same CPUs
        return claim


def cpus_in(grants: Iterable[CpuGrant]) -> CpuSet:
    """All CPUs of some grants."""
    return union(grant.cpus for grant in grants)


def _named_by(device: CdiDevice) -> CpuSet:
    """The CPUs in the variables of a CDI device; none if it names none."""
    return union(_cpus(value) for name, value in device.variables if not name.startswith(MEMORY.variables))


def _memory_in(grants: Iterable[CpuGrant]) -> "MemorySizes | None":
    """The memory of some grants; None if they have none."""
    parts = [grant.memory for grant in grants if grant.memory]
    return type(parts[0]).sum(parts) if parts else None


def _memory_named_by(devices: Iterable[CdiDevice]) -> "Mapping[Place, int]":
    """The memory in the variables of CDI devices, by place."""
    naming = [device for device in devices if any(name.startswith(MEMORY.variables) for name, _ in device.variables)]
    if not naming:
        return {}
    from dracpu_agent.claims.memory_sizes import named_by  # noqa: PLC0415 - agents of CPUs alone do not load it

    return named_by(naming)


def _memory_beyond(
    known: Iterable[CpuGrant], others: Iterable[CpuGrant], devices: Iterable[CdiDevice]
) -> "MemorySizes | None":
    """The memory that other sources name beyond that of the known grants."""
    held, other, named = _memory_in(known), _memory_in(others), _memory_named_by(devices)
    if not (other or named):
        return None
    from dracpu_agent.claims.memory_sizes import MemorySizes, beyond  # noqa: PLC0415 - likewise

    sources = (other.by_place() if other else {}, named)
    return MemorySizes.of(beyond(held.by_place() if held else {}, *sources)) or None


def _readable_memory(records: object) -> "MemorySizes | None":
    if records is None:
        return None
    from dracpu_agent.claims.memory_sizes import MemorySizes  # noqa: PLC0415 - likewise

    return MemorySizes.salvage(records) or None


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
                memory=_readable_memory(fields.get("memory")),
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

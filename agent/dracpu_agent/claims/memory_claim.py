"""Claims of the driver dra.memory: how many bytes of which kind each was granted on which NUMA node."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dracpu_agent.claims.fields import Fields, RecordError
from dracpu_agent.claims.grant import Grant
from dracpu_agent.claims.held import HeldClaim, Variables
from dracpu_agent.claims.memory_sizes import MemorySizes, beyond, named_by, place_and_size
from dracpu_agent.memory.binding import Binding, Part
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.placement.proof import CdiDevice
from dracpu_api.names import MEMORY, DriverNames
from dracpu_api.quantity import format_binary


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrant(Grant):
    """Bytes given to one allocation result of a claim."""

    place: Place
    size: int
    binding: Binding = Binding.STRICT
    mount: str = ""  # where files of the pages appear in the container

    @property
    def part(self) -> Part:
        """The memory that it gives a container."""
        return Part(self.place, self.size, self.binding, self.mount)

    def data(self) -> dict[str, Any]:
        """The fields that the owner of the claim finds in its status."""
        size = format_binary(self.size)
        return {"numaNode": self.place.numa, "kind": self.place.kind.name, "size": size, **self._parameters()}

    def fields(self) -> dict[str, Any]:
        """The driver's own fields in the record of the claim."""
        numa, kind = self.place.numa, self.place.kind.name
        return {"numaNode": numa, "memoryKind": kind, "bytes": self.size, **self._parameters()}

    def _parameters(self) -> dict[str, str]:
        """Those that differ from their defaults."""
        binding = {} if self.binding is Binding.STRICT else {"binding": self.binding.value}
        return {**binding, **({"mount": self.mount} if self.mount else {})}


@dataclass(frozen=True, slots=True)
class MemoryClaim(HeldClaim[MemoryGrant]):
    """A claim and the memory granted to it."""

    names: ClassVar[DriverNames] = MEMORY
    kind: ClassVar[str] = "memory"

    @property
    def content(self) -> str:
        """What the claim holds, for messages."""
        return self.text(self.grants) or "memory of unknown size"

    @property
    def serves_one_pod(self) -> bool:
        """True: no cgroup limits two pods together. Of a frozen claim, it is not known which pods it is for."""
        return self.frozen is None

    @property
    def size(self) -> float:
        """Its bytes of all kinds."""
        return sum(grant.size for grant in self.grants)

    def text(self, grants: Sequence[MemoryGrant]) -> str:
        """The memory of some of its grants."""
        return str(MemorySizes.of(sizes_of(grants)))

    def variables(self, request: str | None, grants: Sequence[MemoryGrant]) -> Variables:
        """A variable for each kind, and one with all NUMA nodes."""
        return MemorySizes.of(sizes_of(grants)).variables(self.names.variable(self.ref.uid, request))

    def by_cdi_device(self) -> Iterator[tuple[str, Mapping[Place, int]]]:
        """Each CDI device, and the bytes that it gives a container, by place."""
        for device, parts in self.parts_by_cdi_device():
            yield device, sizes_of(parts)

    def parts_by_cdi_device(self) -> Iterator[tuple[str, Sequence[Part]]]:
        """Each CDI device, and what it gives a container."""
        if self.frozen is not None and self.frozen.devices:
            for device in self.frozen.devices:
                yield device.name, self._frozen_parts(device)
            return
        for request, grants in self.uses():
            yield self.names.cdi_device(self.ref.uid, request), [grant.part for grant in grants]

    def _frozen_parts(self, device: CdiDevice) -> Sequence[Part]:
        """The parts that the variables of a CDI device name, with the parameters of grants that can be read: a
        container that is not bound now must not be bound by an agent that reads less."""
        names = {request: self.names.cdi_device(self.ref.uid, request) for request in (None, *self.requests)}
        known = {grant.place: grant for grant in self.grants if device.name in (names[None], names[grant.base_request])}
        preferred = any(grant.binding is Binding.PREFERRED for grant in self.grants)
        binding = Binding.PREFERRED if preferred else Binding.STRICT
        return [
            Part(place, size, binding, known[place].mount if place in known else "")
            for place, size in named_by((device,)).items()
        ]

    @classmethod
    def decode_grant(cls, request: str, pool: str, device: str, share_id: str | None, fields: Fields) -> MemoryGrant:
        """Reads the memory of a grant's record; raises RecordError."""
        place, size = place_and_size(fields)
        binding = _binding(fields.text_or_none("binding"))
        if binding is None:
            raise RecordError("a grant has a binding that this agent does not know")
        return MemoryGrant(
            request=request,
            pool=pool,
            device=device,
            share_id=share_id,
            place=place,
            size=size,
            binding=binding,
            mount=fields.text_or_none("mount") or "",
            unknown=fields.left,
        )

    @classmethod
    def salvage(
        cls, record: object, devices: Iterable[CdiDevice], others: Iterable[MemoryGrant]
    ) -> tuple[MemoryGrant, ...]:
        """A grant for each place, with the most that the record, the variables or the CDI file's own record name."""
        readable = tuple(_readable_grants(record))
        left = beyond(sizes_of(readable), sizes_of(others), named_by(devices))
        rest = (
            MemoryGrant(request="", pool="", device=place.device, share_id=None, place=place, size=size)
            for place, size in left.items()
        )
        return (*readable, *rest)


def sizes_of(grants: Iterable[MemoryGrant | Part]) -> Mapping[Place, int]:
    """The bytes of some grants, by place."""
    sizes: Counter[Place] = Counter()
    for grant in grants:
        sizes[grant.place] += grant.size
    return sizes


def _readable_grants(record: object) -> Iterator[MemoryGrant]:
    grants = record.get("grants") if isinstance(record, dict) else None
    for fields in grants if isinstance(grants, list) else ():
        match fields:
            case {"numaNode": int(numa), "memoryKind": str(name), "bytes": int(size)} if size > 0 and numa >= 0:
                kind = Kind.named(name)
                if kind is not None:
                    texts = {key: value for key, value in fields.items() if isinstance(value, str)}
                    yield MemoryGrant(
                        request=texts.get("request", ""),
                        pool=texts.get("pool", ""),
                        device=texts.get("device", ""),
                        share_id=texts.get("shareID"),
                        place=Place(numa, kind),
                        size=size,
                        binding=_binding(fields.get("binding")) or Binding.PREFERRED,  # which moves no memory
                        mount=texts.get("mount", ""),
                    )


def _binding(value: object) -> Binding | None:
    """The binding in a record: strict where it has none, None for one that this agent does not know."""
    if value is None:
        return Binding.STRICT
    return Binding(value) if isinstance(value, str) and value in set(Binding) else None

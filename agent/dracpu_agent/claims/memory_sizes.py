"""Bytes of memory by place: how they are written into variables, records and messages, and read back.

Claims of both drivers use this. Agents that serve CPUs alone load it only for a claim that has memory.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dracpu_agent.claims.fields import Fields, RecordError
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.room import node_text
from dracpu_agent.placement.proof import CdiDevice
from dracpu_api.quantity import format_binary, whole_number

_KIND_IN_NAME: Final = re.compile(r"_(memory|hugepages_[0-9]+[KMGT]i)$")
_PART: Final = re.compile(r"numanode:([0-9]+),size:([^,;]+)")


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Bytes of memory by place, sorted; there is no place with nothing."""

    items: tuple[tuple[Place, int], ...] = ()

    @classmethod
    def of(cls, sizes: Mapping[Place, int]) -> "MemorySizes":
        """Those of a mapping that are above 0."""
        return cls(tuple(sorted((place, size) for place, size in sizes.items() if size > 0)))

    @classmethod
    def sum(cls, parts: Iterable["MemorySizes"]) -> "MemorySizes":
        """All parts together."""
        sizes: Counter[Place] = Counter()
        for part in parts:
            sizes.update(part.by_place())
        return cls.of(sizes)

    def __bool__(self) -> bool:
        return bool(self.items)

    def __str__(self) -> str:
        return ", ".join(f"{format_binary(size)} of {place}" for place, size in self.items)

    def by_place(self) -> Mapping[Place, int]:
        """The bytes by place."""
        return dict(self.items)

    def variables(self, name: str) -> tuple[tuple[str, str], ...]:
        """An environment variable for each kind, and one with all NUMA nodes; their names begin with `name`."""
        by_kind: dict[Kind, list[str]] = {}
        for place, size in self.items:
            by_kind.setdefault(place.kind, []).append(f"numanode:{place.numa},size:{format_binary(size)}")
        variables = [(f"{name}_{kind.name}", ";".join(parts)) for kind, parts in sorted(by_kind.items())]
        return (*variables, (f"{name}_NUMANodes", node_text({place.numa for place, _ in self.items})))

    def data(self) -> Mapping[str, Any]:
        """The fields that the owner of a claim finds in its status, of the memory of one NUMA node beside its CPUs."""
        nodes = sorted({place.numa for place, _ in self.items})
        sizes = {place.kind.name: format_binary(size) for place, size in self.items}
        return {"numaNode": nodes[0], **sizes} if nodes else {}

    def records(self) -> list[dict[str, Any]]:
        """The inverse of `decode`."""
        return [{"numaNode": place.numa, "memoryKind": place.kind.name, "bytes": size} for place, size in self.items]

    @classmethod
    def decode(cls, records: Iterable[object]) -> "MemorySizes":
        """Reads the records of a grant; raises RecordError."""
        sizes: Counter[Place] = Counter()
        for record in records:
            place, size = place_and_size(Fields(record, "the memory of a grant"))
            sizes[place] += size
        return cls.of(sizes)

    @classmethod
    def salvage(cls, records: object) -> "MemorySizes":
        """Those of the records that can be read."""
        return cls.sum(_readable(records if isinstance(records, list) else []))


def place_and_size(fields: Fields) -> tuple[Place, int]:
    """Reads the place and the bytes out of a record; raises RecordError."""
    numa, name, size = fields.take("numaNode", int), fields.text("memoryKind"), fields.take("bytes", int)
    kind = Kind.named(name)
    if kind is None or size <= 0 or numa < 0:
        raise RecordError(f"a grant has {size} bytes of {name} on NUMA node {numa}")
    return Place(numa, kind), size


def named_by(devices: Iterable[CdiDevice]) -> Mapping[Place, int]:
    """The bytes in the variables of CDI devices, by place."""
    sizes: Counter[Place] = Counter()
    for name, value in (variable for device in devices for variable in device.variables):
        suffix = _KIND_IN_NAME.search(name)
        kind = suffix and Kind.named(suffix[1])
        if kind:
            for numa, size in _PART.findall(value):
                sizes[Place(int(numa), kind)] += whole_number(size) or 0
    return sizes


def beyond(known: Mapping[Place, int], *others: Mapping[Place, int]) -> Mapping[Place, int]:
    """By how much the largest of some sources exceeds what is known, by place."""
    most = {place: max(sizes.get(place, 0) for sizes in others) for sizes in others for place in sizes}
    left = {place: size - known.get(place, 0) for place, size in most.items()}
    return {place: size for place, size in sorted(left.items()) if size > 0}


def _readable(records: Iterable[object]) -> Iterator[MemorySizes]:
    for record in records:
        try:
            yield MemorySizes.decode([record])
        except RecordError:
            continue

"""The kinds of memory that claims can have: ordinary memory, and the hugepages of each size.

A kind has one name in records and variables ("hugepages_2Mi"), and its devices begin with another one, since the names
of devices are DNS labels ("hugepages-2mi-numa000").
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from dracpu_api.device_names import memory_device, parse_memory_device
from dracpu_api.quantity import format_binary

_MEMORY: Final = "memory"
_HUGEPAGES: Final = "hugepages"
_NAME: Final = re.compile(r"hugepages_(?P<size>[0-9]+[KMGT]i)")
_UNITS: Final[Mapping[str, int]] = {unit: 1024**power for power, unit in enumerate("kmgt", start=1)}


@dataclass(frozen=True, order=True)
class Kind:
    """One kind of memory."""

    page: int = 0  # bytes of a hugepage; 0: ordinary memory

    @property
    def is_huge(self) -> bool:
        """True for hugepages."""
        return self.page > 0

    @cached_property
    def name(self) -> str:
        """Its name in records, variables, settings and the status."""
        return f"{_HUGEPAGES}_{format_binary(self.page)}" if self.is_huge else _MEMORY

    @cached_property
    def cgroup_name(self) -> str:
        """The size of its pages in the names of files of a cgroup, such as hugetlb.2MB.max."""
        text = format_binary(self.page)
        return f"{text[:-2]}{text[-2].upper()}B"

    @cached_property
    def limit_files(self) -> tuple[str, str]:
        """The files of a cgroup that limit how many of its pages are used, and how many are reserved."""
        return f"hugetlb.{self.cgroup_name}.max", f"hugetlb.{self.cgroup_name}.rsvd.max"

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def named(name: str) -> "Kind | None":
        """The inverse of `name`; None for another text."""
        if name == _MEMORY:
            return MEMORY
        match = _NAME.fullmatch(name)
        kind = None if match is None else Kind(_bytes(match["size"]))
        return kind if kind is not None and kind.name == name else None


MEMORY: Final = Kind()


class Place(NamedTuple):
    """One kind of memory on one NUMA node: what a device stands for."""

    numa: int
    kind: Kind

    @property
    def device(self) -> str:
        """The name of its device, which is the same after every start of the agent."""
        return memory_device(self.kind.name, self.numa)

    def __str__(self) -> str:
        return f"{self.kind} on NUMA node {self.numa}"


def place_of(device: str) -> Place | None:
    """The inverse of `Place.device`; None for a name that no device of memory has."""
    match parse_memory_device(device):
        case None:
            return None
        case name, numa:
            kind = Kind.named(name)
            return None if kind is None else Place(numa, kind)


def _bytes(size: str) -> int:
    return int(size[:-2]) * _UNITS[size[-2].lower()]

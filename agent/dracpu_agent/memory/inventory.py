"""The memory of a machine: how much each NUMA node has, and how many hugepages of each size."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from dracpu_agent.topology.topology import TopologyError
from dracpu_api.cpuset import CpuSet

_KB: Final = 1024


@dataclass(frozen=True, slots=True)
class Pages:
    """The hugepages of one size on one NUMA node."""

    size: int  # bytes of one page
    count: int  # without surplus pages: the kernel removes those as soon as nothing uses them
    free: int = field(compare=False)  # changes all the time
    surplus: int = 0


@dataclass(frozen=True, slots=True)
class NumaMemory:
    """The memory of one NUMA node."""

    numa: int
    cpus: CpuSet  # of this node that are online; none for memory without CPUs, such as HBM, CXL or a GPU's
    total: int  # bytes that the kernel manages, hugepages included
    tier: int | None = None  # the kernel's number, lower is faster; None: the kernel does not report tiers
    pages: tuple[Pages, ...] = ()  # every size that the kernel supports, in ascending order of size

    def pages_of(self, size: int) -> Pages:
        """The pages of one size; none of a size that the kernel does not support."""
        return next((pages for pages in self.pages if pages.size == size), Pages(size, 0, 0))


@dataclass(frozen=True)
class Inventory:
    """The NUMA nodes that have memory, ascending."""

    nodes: tuple[NumaMemory, ...]
    base_page: int = 4096  # bytes of a page of ordinary memory

    @cached_property
    def by_numa(self) -> Mapping[int, NumaMemory]:
        """NUMA node -> its memory."""
        return {node.numa: node for node in self.nodes}

    @cached_property
    def page_sizes(self) -> Sequence[int]:
        """Every size of hugepages that the kernel supports, in bytes, ascending."""
        return sorted({pages.size for node in self.nodes for pages in node.pages})


def with_fewer_free(found: Inventory, other: Inventory) -> Inventory:
    """What was found, with no more free pages than another look has found."""
    free = {(node.numa, pages.size): pages.free for node in other.nodes for pages in node.pages}

    def fewer(numa: int, pages: Pages) -> Pages:
        return replace(pages, free=min(pages.free, free.get((numa, pages.size), pages.free)))

    nodes = (replace(node, pages=tuple(fewer(node.numa, pages) for pages in node.pages)) for node in found.nodes)
    return replace(found, nodes=tuple(nodes))


SURPLUS_LOOKS: Final = 7  # over which surplus pages count although they are gone: 30 s, with a look every 5 s


class SteadySurplus:
    """Counts as many surplus pages as there were at most in the last looks.

    Programs make the kernel take surplus pages out of ordinary memory and give them back, within seconds. So ordinary
    memory shrinks at once, and grows when it has had room for some time: its capacity does not change all the time.
    """

    def __init__(self, looks: int, first: Inventory) -> None:
        self._recent: deque[Mapping[tuple[int, int], int]] = deque([_surplus(first)], maxlen=looks)

    def follow(self, found: Inventory) -> Inventory:
        """The inventory of the next look, with the surplus pages that count."""
        self._recent.append(_surplus(found))
        return replace(found, nodes=tuple(map(self._steady, found.nodes)))

    def _steady(self, node: NumaMemory) -> NumaMemory:
        most = {
            size: max(look.get((node.numa, size), 0) for look in self._recent)
            for size in {pages.size for pages in node.pages}
        }
        return replace(node, pages=tuple(replace(pages, surplus=most[pages.size]) for pages in node.pages))


def _surplus(inventory: Inventory) -> Mapping[tuple[int, int], int]:
    return {(node.numa, pages.size): pages.surplus for node in inventory.nodes for pages in node.pages if pages.surplus}


def persistent(total: int, surplus: int) -> int:
    """The number of pages that stay when nothing uses them. The kernel's total includes surplus pages: those that were
    taken away while they were in use, or that the kernel added for a moment."""
    return max(0, total - surplus)


def total_in(meminfo: str, source: str) -> int:
    """MemTotal in bytes, from a NUMA node's meminfo ("Node 0 MemTotal:  16316412 kB") or from /proc/meminfo."""
    return _number(meminfo, "MemTotal", source)


def free_in(meminfo: str, source: str) -> int:
    """MemFree in bytes, from the same files."""
    return _number(meminfo, "MemFree", source)


def _number(meminfo: str, wanted: str, source: str) -> int:
    for line in meminfo.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.split()[-1:] == [wanted]:
            return _bytes(wanted, value, source)
    raise TopologyError(f"{source} has no {wanted}")


def page_size_in(directory: str) -> int | None:
    """The bytes of a page, from the name of a directory such as hugepages-2048kB; None for other names."""
    number = directory.removeprefix("hugepages-").removesuffix("kB")
    return int(number) * _KB if directory == f"hugepages-{number}kB" and number.isdecimal() else None


def _bytes(name: str, value: str, source: str) -> int:
    match value.split():
        case [number, "kB"] if number.isdecimal():
            return int(number) * _KB
        case _:
            raise TopologyError(f'{source}: {name} "{value.strip()}" is not a number of kB')

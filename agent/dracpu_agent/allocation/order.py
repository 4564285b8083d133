"""The order in which the kubelet tries sockets, NUMA nodes, uncores and cores.

All use the same comparison: fewest free CPUs first, then the lowest id, so that partly used groups are used up and free
groups stay whole. A group's free CPUs are counted on the whole machine, even if the groups of a larger one are ordered.
A group that lies in two larger ones appears once, with the first.
"""

from collections.abc import Iterable, Iterator, Mapping

from dracpu_agent.allocation.machine import Group, Machine


def outer_order(machine: Machine, free: int) -> list[Group]:
    """The larger of sockets and NUMA nodes."""
    return _sorted(machine.outer, free, free)


def inner_order(machine: Machine, free: int) -> list[Group]:
    """The smaller of sockets and NUMA nodes, by outer group."""
    return _nested(outer_order(machine, free), machine.inner_of, free)


def socket_order(machine: Machine, free: int) -> list[Group]:
    """Sockets with a free CPU."""
    return inner_order(machine, free) if machine.numa_first else outer_order(machine, free)


def numa_order(machine: Machine, free: int) -> list[Group]:
    """NUMA nodes with a free CPU."""
    return outer_order(machine, free) if machine.numa_first else inner_order(machine, free)


def uncore_order(machine: Machine, free: int) -> list[Group]:
    """Uncores with a free CPU, by NUMA node."""
    return _nested(numa_order(machine, free), machine.uncores_of, free)


def core_runs(machine: Machine, free: int) -> Iterator[tuple[int, int]]:
    """All cores with a free CPU, in runs of equal cores: (free CPUs of each core, mask of the cores).

    Cores are ordered by inner group, then by fewest free threads. A group has at most as many runs as a core has
    threads, and a run is one mask, so that 256 cores need not be sorted.
    """
    by_threads = machine.cores_by_threads(free)
    seen = 0
    for group in inner_order(machine, free):
        here = machine.cores_of(free & group.mask) & ~seen
        seen |= here
        for threads, cores in by_threads:
            if cores & here:
                yield threads, cores & here


def _sorted(groups: Iterable[Group], free: int, within: int) -> list[Group]:
    """The groups with a free CPU in `within`."""
    found = [((free & group.mask).bit_count(), group.id, group) for group in groups if group.mask & within]
    found.sort()  # ids are unique, so that the groups themselves are not compared
    return [group for _, _, group in found]


def _nested(parents: Iterable[Group], members: Mapping[int, tuple[Group, ...]], free: int) -> list[Group]:
    ordered: dict[int, Group] = {}
    for parent in parents:
        for group in _sorted(members[parent.id], free, free & parent.mask):
            ordered.setdefault(group.id, group)
    return list(ordered.values())

"""In which order the kubelet looks at sockets, NUMA nodes, uncores and cores.

One comparison serves them all: fewest free CPUs first, then the lowest id, so that what is started is used up and
what is whole stays whole. The free CPUs of a group count on the whole machine, even where the list is made inside a
larger group. A group that lies in two larger ones is met once, with the first.
"""

from collections.abc import Iterable, Iterator, Mapping

from dracpu_agent.allocation.machine import Group, Machine


def outer_order(machine: Machine, free: int) -> list[Group]:
    """The larger of sockets and NUMA nodes."""
    return _sorted(machine.outer, free, free)


def inner_order(machine: Machine, free: int) -> list[Group]:
    """The smaller of sockets and NUMA nodes: outer group by outer group."""
    return _nested(outer_order(machine, free), machine.inner_of, free)


def socket_order(machine: Machine, free: int) -> list[Group]:
    """Sockets with a free CPU."""
    return inner_order(machine, free) if machine.numa_first else outer_order(machine, free)


def numa_order(machine: Machine, free: int) -> list[Group]:
    """NUMA nodes with a free CPU."""
    return outer_order(machine, free) if machine.numa_first else inner_order(machine, free)


def uncore_order(machine: Machine, free: int) -> list[Group]:
    """Uncores with a free CPU: NUMA node by NUMA node."""
    return _nested(numa_order(machine, free), machine.uncores_of, free)


def core_runs(machine: Machine, free: int) -> Iterator[tuple[int, int]]:
    """All cores with a free CPU as runs of equals: (free CPUs of each core, mask of cores, to be read ascending).

    Cores go inner group by inner group, fewest free threads first. So a group's cores fall into as many runs as a
    core has threads, and a run is one mask: nobody has to sort 256 cores.
    """
    by_threads = machine.cores_by_threads(free)
    met = 0
    for group in inner_order(machine, free):
        here = machine.cores_of(free & group.mask) & ~met
        met |= here
        for threads, cores in by_threads:
            if cores & here:
                yield threads, cores & here


def _sorted(groups: Iterable[Group], free: int, within: int) -> list[Group]:
    """The groups with a free CPU in `within`."""
    found = [((free & group.mask).bit_count(), group.id, group) for group in groups if group.mask & within]
    found.sort()  # ids are unique: groups themselves are never compared
    return [group for _, _, group in found]


def _nested(parents: Iterable[Group], members: Mapping[int, tuple[Group, ...]], free: int) -> list[Group]:
    met: dict[int, Group] = {}
    for parent in parents:
        for group in _sorted(members[parent.id], free, free & parent.mask):
            met.setdefault(group.id, group)
    return list(met.values())

"""Computes what a group offers with fullCores: the unit and the number of CPUs, so that every amount can be granted.

The scheduler sees only a sum: every multiple of the unit that it subtracts must be available in whole cores, again and
again. That is simple where all cores have the same number of threads. Where they do not (hybrid CPUs, threads that are
offline), an amount may be below the sum and still not be available: two cores of three threads are six CPUs, but never
four. So only kinds of cores count of which each divides the next: from 1, 2 and 4 any multiple of 4 up to their sum can
be granted, whichever of them were granted before. Cores of other kinds are granted too where they fit.
"""

from collections import Counter
from collections.abc import Iterable

from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet

Kinds = tuple[int, ...]  # numbers of threads, ascending, each divides the next; the last one is the unit


def kinds_of(topology: Topology, allocatable: CpuSet) -> Kinds:
    """The kinds of cores that the group is offered in: of all combinations the one that offers most.

    Depends on the machine and the settings only: claims that come and go do not change it.
    """
    cores = [threads for threads in topology.cores.values() if not threads.isdisjoint(allocatable)]
    whole = Counter(len(threads) for threads in cores if threads <= allocatable)

    def offered(kinds: Kinds) -> int:
        return _in_units(sum(threads * whole[threads] for threads in kinds), kinds)

    sizes = sorted(whole or {len(threads) for threads in cores})
    return max(_combining(sizes), key=lambda kinds: (offered(kinds), kinds[-1], len(kinds)), default=(1,))


def offered_in_whole_cores(topology: Topology, offered: CpuSet, own: CpuSet, kinds: Kinds) -> int:
    """How many CPUs to offer: the device's own shares, which the scheduler subtracts, and whole free cores."""
    free = offered - own
    cores = (len(threads) for threads in topology.cores.values() if threads <= free)
    return len(own & offered) + _in_units(sum(threads for threads in cores if threads in kinds), kinds)


def _combining(sizes: Iterable[int]) -> list[Kinds]:
    """All chains of these ascending sizes in which each divides the next."""
    found: list[Kinds] = []
    for size in sizes:
        found += [(size,), *((*kinds, size) for kinds in found if size % kinds[-1] == 0)]
    return found


def _in_units(cpus: int, kinds: Kinds) -> int:
    return cpus // kinds[-1] * kinds[-1]

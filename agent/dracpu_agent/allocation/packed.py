"""The kubelet's packed allocation: as close together as the free CPUs allow.

The rules are kubelet v1.36's, its answers are matched CPU for CPU (tests/vectors). Where the kubelet itself goes
wrong the right thing is done instead: it judges whether sockets and cores are wholly free by the machine's average
size, and takes busy CPUs, or misses free cores, where cores are uneven (hybrid CPUs, threads offline).

Masks of CPUs go in and out; choose.py is the door for everybody else.
"""

from collections.abc import Callable, Iterable, Sequence

from dracpu_agent.allocation.errors import NotEnoughCpusError, cpus_text, cpuset_text
from dracpu_agent.allocation.machine import Group, Machine, lowest
from dracpu_agent.allocation.order import core_runs, inner_order, outer_order, socket_order, uncore_order
from dracpu_api.cpuset import CpuSet

# A step looks at what is still free and takes at most what is still needed.
Step = Callable[[Machine, int, int], int]


def packed(machine: Machine, available: int, count: int, *, prefer_uncore: bool = False, spread: bool = False) -> int:
    """`count` of the available CPUs, from as few groups as possible; none for a count below one.

    `prefer_uncore` keeps what is less than a NUMA node within one L3 cache where that is possible. `spread` is the
    kubelet's distribute-cpus-across-cores: it takes single CPUs instead of whole cores.
    """
    free = available & machine.cpus
    if count < 1:
        return 0
    require(free, count)
    taken = 0
    for step in _steps(prefer_uncore=prefer_uncore, spread=spread):
        need = count - taken.bit_count()
        if need == 0:
            break
        taken |= step(machine, free & ~taken, need)
    assert taken.bit_count() == count, "the last step takes whatever is free"
    assert taken & ~free == 0, "only free CPUs are taken"
    return taken


def require(free: int, count: int) -> None:
    """Refuses what cannot be had however it is chosen."""
    if count > free.bit_count():
        raise NotEnoughCpusError(
            f"{cpus_text(count)} asked for, {free.bit_count()} free: {cpuset_text(CpuSet.of_mask(free))}"
        )


def take_whole_cores(machine: Machine, free: int, need: int) -> int:
    """Cores of which every CPU is free, as long as they fit into what is needed."""
    whole = machine.whole_cores(free)
    taken = 0
    for threads, cores in core_runs(machine, free):
        if need < threads:
            continue
        chosen = lowest(cores & whole, need // threads)
        taken |= machine.cpus_of(chosen)
        need -= threads * chosen.bit_count()
    return taken


def _steps(*, prefer_uncore: bool, spread: bool) -> Iterable[Step]:
    yield _take_outer
    yield _take_inner
    if prefer_uncore:
        yield _take_uncores
    if spread:
        yield _take_cpus_by_socket
    else:
        yield take_whole_cores
        yield _take_cpus_by_core


def _take_outer(machine: Machine, free: int, need: int) -> int:
    if not _take_whole(machine.outer, free, need):
        return 0  # nothing fits in any order: a fragmented machine is spared the sorting
    return _take_whole(outer_order(machine, free), free, need)


def _take_inner(machine: Machine, free: int, need: int) -> int:
    if not _take_whole(machine.inner, free, need):
        return 0
    return _take_whole(inner_order(machine, free), free, need)


def _take_whole(groups: Sequence[Group], free: int, need: int) -> int:
    """Groups of which every CPU is free, as long as they fit into what is needed."""
    taken = 0
    for group in groups:
        if group.size <= need and group.mask & ~free == 0:
            taken |= group.mask
            need -= group.size
    return taken


def _take_uncores(machine: Machine, free: int, need: int) -> int:
    """Whole uncores, then one uncore that can serve all the rest; whole ones stay taken also when none can."""
    order = uncore_order(machine, free)
    taken = 0
    if need >= machine.cpus_per_uncore:
        taken = _take_whole(order, free, need)
        free &= ~taken
        need -= taken.bit_count()
    if need:
        taken |= next(filter(None, (_part_of(machine, uncore, free, need) for uncore in order)), 0)
    return taken


def _part_of(machine: Machine, uncore: Group, free: int, need: int) -> int:
    """Exactly what is needed from the uncore's lowest cores, or nothing."""
    wanted_cores = -(-need // machine.cpus_per_core)
    cores = lowest(machine.cores_of(free & uncore.mask), wanted_cores)
    cpus = free & machine.cpus_of(cores)
    if need % 2 and machine.cpus_per_core > 1 and cpus.bit_count() > need:
        cpus ^= 1 << (cpus.bit_length() - 1)  # an odd number leaves one thread of the last core
    return cpus if cpus.bit_count() == need else 0


def _take_cpus_by_core(machine: Machine, free: int, need: int) -> int:
    """CPU by CPU, in the order of cores: cores with busy threads come first."""
    taken = 0
    for threads, cores in core_runs(machine, free):
        if need == 0:
            break
        used_up = lowest(cores, need // threads)
        begun = lowest(cores & ~used_up, 1)
        chosen = free & machine.cpus_of(used_up)
        chosen |= lowest(free & machine.cpus_of(begun), need - chosen.bit_count())
        taken |= chosen
        need -= chosen.bit_count()
    return taken


def _take_cpus_by_socket(machine: Machine, free: int, need: int) -> int:
    """CPU by CPU, in the order of sockets, whatever core they belong to."""
    taken = 0
    for socket in socket_order(machine, free):
        chosen = lowest(free & socket.mask, need)
        taken |= chosen
        need -= chosen.bit_count()
    return taken

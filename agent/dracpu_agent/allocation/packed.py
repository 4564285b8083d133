"""The kubelet's packed allocation: as close together as the free CPUs allow.

It follows kubelet v1.37 and returns the same CPUs (tests/vectors), except for a bug of the kubelet: it uses the
machine's average size to decide whether a socket or core is wholly free. With uneven cores (hybrid CPUs, threads
offline) it takes busy CPUs or misses free cores.

Functions take and return masks of CPUs; choose.py is the entry point for requests.
"""

from collections.abc import Callable, Iterable, Sequence

from dracpu_agent.allocation.errors import NotEnoughCpusError, cpus_text, cpuset_text
from dracpu_agent.allocation.machine import Group, Machine, lowest
from dracpu_agent.allocation.order import core_runs, inner_order, outer_order, socket_order, uncore_order
from dracpu_api.cpuset import CpuSet

# A step takes the machine, the CPUs still free and the number still needed; it returns at most that many CPUs.
Step = Callable[[Machine, int, int], int]


def packed(machine: Machine, available: int, count: int, *, prefer_uncore: bool = False, spread: bool = False) -> int:
    """Takes `count` of the available CPUs from as few groups as possible; takes none for a count below one.

    `prefer_uncore` keeps less than a NUMA node within one L3 cache if possible. `spread` is the kubelet's
    distribute-cpus-across-cores: it takes single CPUs instead of whole cores.
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
    assert taken.bit_count() == count, "the last step takes any free CPU"
    assert taken & ~free == 0, "only free CPUs are taken"
    return taken


def require(free: int, count: int) -> None:
    """Raises an error if there are fewer free CPUs than requested."""
    if count > free.bit_count():
        raise NotEnoughCpusError(
            f"{cpus_text(count)} requested, {free.bit_count()} free: {cpuset_text(CpuSet.of_mask(free))}"
        )


def take_whole_cores(machine: Machine, free: int, need: int) -> int:
    """Takes cores whose CPUs are all free, up to the number needed."""
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
        return 0  # no group fits in any order: this saves the sorting on a fragmented machine
    return _take_whole(outer_order(machine, free), free, need)


def _take_inner(machine: Machine, free: int, need: int) -> int:
    if not _take_whole(machine.inner, free, need):
        return 0
    return _take_whole(inner_order(machine, free), free, need)


def _take_whole(groups: Sequence[Group], free: int, need: int) -> int:
    """Takes groups whose CPUs are all free, up to the number needed."""
    taken = 0
    for group in groups:
        if group.size <= need and group.mask & ~free == 0:
            taken |= group.mask
            need -= group.size
    return taken


def _take_uncores(machine: Machine, free: int, need: int) -> int:
    """Takes whole uncores, then the rest from one uncore that has enough, if there is one."""
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
    """Exactly the number needed, from the uncore's lowest cores, or none."""
    wanted_cores = -(-need // machine.cpus_per_core)
    cores = lowest(machine.cores_of(free & uncore.mask), wanted_cores)
    cpus = free & machine.cpus_of(cores)
    if need % 2 and machine.cpus_per_core > 1 and cpus.bit_count() > need:
        cpus ^= 1 << (cpus.bit_length() - 1)  # an odd number leaves one thread of the last core
    return cpus if cpus.bit_count() == need else 0


def _take_cpus_by_core(machine: Machine, free: int, need: int) -> int:
    """Takes single CPUs in the order of cores: cores with busy threads come first."""
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
    """Takes single CPUs in the order of sockets, regardless of their cores."""
    taken = 0
    for socket in socket_order(machine, free):
        chosen = lowest(free & socket.mask, need)
        taken |= chosen
        need -= chosen.bit_count()
    return taken

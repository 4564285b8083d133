"""Allocates whole physical cores: a claim gets every thread of a core, or none."""

from collections.abc import Callable, Sequence

from dracpu_agent.allocation.errors import NotEnoughCoresError, cpus_text
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import take_whole_cores


def in_whole_cores(machine: Machine, free: int, count: int, allocate: Callable[[int], int]) -> int:
    """Chooses `count` CPUs in whole cores. `allocate` is the strategy: it chooses among the CPUs passed to it.

    If all cores have the same number of threads, every strategy returns whole cores. On uneven machines the last core
    may be cut; then a mix of cores that adds up to `count` is used, in the order of cores.
    """
    usable = machine.cpus_of(machine.whole_cores(free))
    by_threads = machine.cores_by_threads(usable)
    if usable.bit_count() >= count:
        chosen = allocate(usable)
        if machine.cpus_of(machine.cores_of(chosen)) == chosen:
            return chosen
        mix = _mix([(threads, cores.bit_count()) for threads, cores in by_threads], count)
        if mix is not None:
            return _take_mix(machine, by_threads, mix)
    have = ", ".join(f"{cores.bit_count()} with {cpus_text(threads)}" for threads, cores in by_threads) or "none"
    raise NotEnoughCoresError(
        f"{cpus_text(count)} in whole cores requested; whole free cores: {have}. Request a number that some of them "
        "add up to, or set fullCores to false"
    )


def _mix(cores: Sequence[tuple[int, int]], count: int) -> list[int] | None:
    """How many cores of each kind (threads, cores; ascending) add up to `count` CPUs; None if no mix does.

    Cores with most threads are preferred, so that the request takes as few cores as possible.
    """
    numbers: list[int] = []
    for kind in reversed(range(len(cores))):
        threads, most = cores[kind]
        others = _totals(cores[:kind])
        fitting = (n for n in range(min(most, count // threads), -1, -1) if others >> (count - n * threads) & 1)
        number = next(fitting, None)
        if number is None:
            return None
        numbers.append(number)
        count -= number * threads
    return numbers[::-1] if count == 0 else None


def _totals(cores: Sequence[tuple[int, int]]) -> int:
    """Bit n is set if some of these cores have n CPUs in total."""
    totals = 1
    for threads, left in cores:
        remaining, together = left, 1
        while remaining:  # doubling: every number of cores is a sum of 1, 2, 4, ... and a rest
            together = min(together, remaining)
            totals |= totals << (threads * together)
            remaining -= together
            together *= 2
    return totals


def _take_mix(machine: Machine, by_threads: Sequence[tuple[int, int]], mix: Sequence[int]) -> int:
    taken = 0
    for (threads, cores), number in zip(by_threads, mix, strict=True):
        taken |= take_whole_cores(machine, machine.cpus_of(cores), number * threads)
    return taken

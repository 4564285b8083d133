"""Requests for whole physical cores: every thread of a core that is given is free and is given."""

from collections.abc import Callable, Sequence

from dracpu_agent.allocation.errors import NotEnoughCoresError, cpus_text
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import take_whole_cores


def in_whole_cores(machine: Machine, free: int, count: int, allocate: Callable[[int], int]) -> int:
    """`count` CPUs in whole cores. `allocate` chooses among the CPUs that it is given.

    Where all cores have the same number of threads, any of the strategies keeps them whole by itself. On uneven
    machines it may end on half a core; then a mix of cores that adds up is taken in the order of cores.
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
        f"{cpus_text(count)} in whole cores asked for; whole free cores: {have}. Ask for what they add up to, "
        "or set fullCores to false"
    )


def _mix(cores: Sequence[tuple[int, int]], count: int) -> list[int] | None:
    """How many cores of each kind (threads, cores; ascending) make `count` CPUs; None: they cannot.

    As many as possible with most threads: fewer cores are shared with nobody.
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
    """Bit n: some of these cores have n CPUs together."""
    totals = 1
    for threads, left in cores:
        remaining, together = left, 1
        while remaining:  # doubling: any number of cores is a sum of 1, 2, 4, ... and a rest
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

"""The allocator's front door: which CPUs of a device a request gets.

machine.py      the groups of the machine as masks            order.py     in which order they are looked at
packed.py       close together (the kubelet's default)        cores.py     only whole cores
distributed.py  in equal parts, as balance.py divides them    explicit.py  the claim names its CPUs itself
"""

from dataclasses import dataclass

from dracpu_agent.allocation.cores import in_whole_cores
from dracpu_agent.allocation.distributed import Over, distributed
from dracpu_agent.allocation.errors import InvalidCountError
from dracpu_agent.allocation.explicit import check_explicit
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import packed, require
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Allocation, Strategy


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request wants of one device."""

    count: int
    allocation: Allocation
    explicit: CpuSet | None = None  # the claim's own cpuset: exactly these CPUs, or none


def choose(
    machine: Machine,
    group: CpuSet,
    available: CpuSet,
    ask: Ask,
    over: Over,
    *,
    reserved: CpuSet = EMPTY,
) -> CpuSet:
    """Exactly `ask.count` CPUs out of those that are in the device's group and available, or an AllocationError.

    `available`: what is free now, less what is reserved and what other requests of the claim were just given.
    `over`: what the strategy `distributed` divides the CPUs over.
    `reserved`: only so that a cpuset that names such CPUs is refused for the right reason.
    """
    # The type says int; a number out of a claim that is none must not end up as a share of a CPU.
    if not isinstance(ask.count, int) or ask.count < 1:
        raise InvalidCountError(f"{ask.count} CPUs asked for: ask for a whole number, at least 1")
    free = available.mask & group.mask & machine.cpus
    if ask.explicit is not None:
        full_cores = ask.allocation.full_cores
        check_explicit(machine, group, available, ask.explicit, ask.count, reserved=reserved, full_cores=full_cores)
        chosen = ask.explicit.mask
    else:
        require(free, ask.count)
        chosen = _by_strategy(machine, free, ask, over)
    assert chosen.bit_count() == ask.count, "as many CPUs as asked for"
    assert chosen & ~free == 0, "only what is free in the device"
    return CpuSet.of_mask(chosen)


def _by_strategy(machine: Machine, free: int, ask: Ask, over: Over) -> int:
    def allocate(among: int) -> int:
        if ask.allocation.strategy is Strategy.PACKED:
            return packed(machine, among, ask.count, prefer_uncore=ask.allocation.prefer_uncore_cache)
        chunk = machine.cpus_per_core if ask.allocation.full_cores else 1
        return distributed(machine, among, ask.count, chunk, over=over)

    if ask.allocation.full_cores:
        return in_whole_cores(machine, free, ask.count, allocate)
    return allocate(free)

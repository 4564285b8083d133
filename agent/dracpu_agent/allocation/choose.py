"""The allocator's entry point: chooses which CPUs of a device a request gets.

machine.py      the machine's groups of CPUs as masks         order.py     the order in which groups are tried
packed.py       close together (the kubelet's default)        cores.py     only whole cores
distributed.py  in equal parts, divided by balance.py         explicit.py  the CPUs that the claim names
"""

from dataclasses import dataclass

from dracpu_agent.allocation.cores import in_whole_cores
from dracpu_agent.allocation.distributed import Level, distributed
from dracpu_agent.allocation.errors import InvalidCountError
from dracpu_agent.allocation.explicit import check_explicit
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import packed, require
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Allocation, Strategy


@dataclass(frozen=True, slots=True)
class Ask:
    """The part of a request that concerns one device."""

    count: int
    allocation: Allocation
    explicit: CpuSet | None = None  # the cpuset that the claim names: it gets exactly these CPUs


def choose(
    machine: Machine,
    group: CpuSet,
    available: CpuSet,
    ask: Ask,
    over: Level,
    *,
    reserved: CpuSet = EMPTY,
) -> CpuSet:
    """Chooses exactly `ask.count` CPUs that are in the device's group and available, or raises AllocationError.

    `available`: the free CPUs, without reserved CPUs and those just chosen for other requests of the claim.
    `over`: the groups that the strategy `distributed` divides the CPUs over.
    `reserved`: used only to give the right reason when a cpuset with reserved CPUs is refused.
    """
    # Despite the type, a claim may hold another number. It must not become a fraction of a CPU.
    if not isinstance(ask.count, int) or ask.count < 1:
        raise InvalidCountError(f"{ask.count} CPUs requested: request a whole number of at least 1")
    free = available.mask & group.mask & machine.cpus
    if ask.explicit is not None:
        full_cores = ask.allocation.full_cores
        check_explicit(machine, group, available, ask.explicit, ask.count, reserved=reserved, full_cores=full_cores)
        chosen = ask.explicit.mask
    else:
        require(free, ask.count)
        chosen = _by_strategy(machine, free, ask, over)
    assert chosen.bit_count() == ask.count, "as many CPUs as requested"
    assert chosen & ~free == 0, "only free CPUs of the device"
    return CpuSet.of_mask(chosen)


def _by_strategy(machine: Machine, free: int, ask: Ask, over: Level) -> int:
    def allocate(among: int) -> int:
        if ask.allocation.strategy is Strategy.PACKED:
            return packed(machine, among, ask.count, prefer_uncore=ask.allocation.prefer_uncore_cache)
        chunk = machine.cpus_per_core if ask.allocation.full_cores else 1
        return distributed(machine, among, ask.count, chunk, over=over)

    if ask.allocation.full_cores:
        return in_whole_cores(machine, free, ask.count, allocate)
    return allocate(free)

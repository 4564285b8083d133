"""The kubelet's distributed allocation: equal parts from as few NUMA nodes as possible.

It follows distribute-cpus-across-numa of kubelet v1.37 and returns the same CPUs (tests/vectors), except for bugs of
the kubelet: its search can run forever, may lose its best subset, and may return a wrong number of CPUs. balance.py
describes how the search is bounded.
"""

from collections.abc import Sequence
from enum import Enum

from dracpu_agent.allocation.balance import balance
from dracpu_agent.allocation.machine import Group, Machine
from dracpu_agent.allocation.order import numa_order, uncore_order
from dracpu_agent.allocation.packed import packed, require


class Level(Enum):
    """The level of the groups over which a request is distributed."""

    NUMA_NODES = "NUMA nodes"
    UNCORES = "L3 groups"  # not in the kubelet: its rule, applied one level below NUMA nodes


def distributed(
    machine: Machine,
    available: int,
    count: int,
    chunk: int = 1,
    *,
    over: Level = Level.NUMA_NODES,
    spread: bool = False,
) -> int:
    """Takes `count` of the available CPUs in equal parts, each a multiple of `chunk` (usually the threads of a core).

    Falls back to packed if `count` is not a multiple of `chunk`, or if no choice of groups has enough whole chunks.
    """
    free = available & machine.cpus
    if count < 1:
        return 0
    require(free, count)
    taken = _distribute(machine, free, count, chunk, over, spread=spread) if count % chunk == 0 else 0
    if not taken:
        return packed(machine, free, count, spread=spread)
    assert taken.bit_count() == count, "parts add up to the count"
    assert taken & ~free == 0, "only free CPUs are taken"
    return taken


def _distribute(machine: Machine, free: int, count: int, chunk: int, over: Level, *, spread: bool) -> int:
    """The CPUs taken, or none if no choice of groups can give the parts."""
    groups, order = _groups(machine, free, over)
    parts = balance(
        [(free & group.mask).bit_count() for group in order], count, chunk, _fewest(machine, groups, count, chunk)
    )
    taken = 0
    for part in parts or ():
        left = free & order[part.group].mask
        for amount in (part.base, *(chunk,) * part.chunks):
            chosen = packed(machine, left, amount, spread=spread)
            taken |= chosen
            left &= ~chosen
    return taken


def _groups(machine: Machine, free: int, over: Level) -> tuple[Sequence[Group], Sequence[Group]]:
    """All groups of the machine, and the groups with a free CPU in the order of preference."""
    if over is Level.NUMA_NODES:
        return machine.numa_nodes, numa_order(machine, free)
    return machine.uncores, uncore_order(machine, free)


def _fewest(machine: Machine, groups: Sequence[Group], count: int, chunk: int) -> int:
    """The number of groups that a request needs on an idle machine; smaller numbers are not tried."""
    chunks_per_group = _ceil(_ceil(machine.cpus.bit_count(), chunk), len(groups))
    return _ceil(count // chunk, chunks_per_group)


def _ceil(amount: int, divisor: int) -> int:
    return -(-amount // divisor)

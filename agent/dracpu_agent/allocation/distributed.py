"""The kubelet's distributed allocation: equal parts from as few NUMA nodes as can give them.

The rules are kubelet v1.36's distribute-cpus-across-numa, and its answers are matched CPU for CPU (tests/vectors).
Where it goes wrong the right thing is done instead: its search can run for ever, forgets its best subset, and trusts
an answer without counting it. balance.py says how the search is bounded.
"""

from collections.abc import Sequence
from enum import Enum

from dracpu_agent.allocation.balance import balance
from dracpu_agent.allocation.machine import Group, Machine
from dracpu_agent.allocation.order import numa_order, uncore_order
from dracpu_agent.allocation.packed import packed, require


class Over(Enum):
    """Between which groups a request is distributed."""

    NUMA_NODES = "NUMA nodes"
    UNCORES = "L3 groups"  # not the kubelet's: its rule, one level further down


def distributed(
    machine: Machine,
    available: int,
    count: int,
    chunk: int = 1,
    *,
    over: Over = Over.NUMA_NODES,
    spread: bool = False,
) -> int:
    """`count` of the available CPUs in equal parts, each a multiple of `chunk` (the threads of a core, usually).

    Packed where this cannot be: `count` is no multiple of `chunk`, or no choice of groups has enough whole chunks.
    """
    free = available & machine.cpus
    if count < 1:
        return 0
    require(free, count)
    taken = _distribute(machine, free, count, chunk, over, spread=spread) if count % chunk == 0 else 0
    if not taken:
        return packed(machine, free, count, spread=spread)
    assert taken.bit_count() == count, "shares add up to what is asked"
    assert taken & ~free == 0, "only free CPUs are taken"
    return taken


def _distribute(machine: Machine, free: int, count: int, chunk: int, over: Over, *, spread: bool) -> int:
    """Nothing, when no choice of groups can give the parts."""
    groups, order = _groups(machine, free, over)
    shares = balance(
        [(free & group.mask).bit_count() for group in order], count, chunk, _fewest(machine, groups, count, chunk)
    )
    taken = 0
    for share in shares or ():
        left = free & order[share.group].mask
        for part in (share.base, *(chunk,) * share.chunks):
            chosen = packed(machine, left, part, spread=spread)
            taken |= chosen
            left &= ~chosen
    return taken


def _groups(machine: Machine, free: int, over: Over) -> tuple[Sequence[Group], Sequence[Group]]:
    """All groups of the machine, and those with a free CPU in order."""
    if over is Over.NUMA_NODES:
        return machine.numa_nodes, numa_order(machine, free)
    return machine.uncores, uncore_order(machine, free)


def _fewest(machine: Machine, groups: Sequence[Group], count: int, chunk: int) -> int:
    """How many groups are needed if all of the machine were free: fewer are not even tried."""
    chunks_per_group = _ceil(_ceil(machine.cpus.bit_count(), chunk), len(groups))
    return _ceil(count // chunk, chunks_per_group)


def _ceil(amount: int, divisor: int) -> int:
    return -(-amount // divisor)

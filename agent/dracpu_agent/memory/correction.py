"""Decides how a container that runs without limits of its claims is given them, step by step. Only arithmetic.

Nothing in it may be harmed: a limit below what a program needs would kill it, and a binding while it has hugepages
elsewhere would take pages from other pools for good. So there are steps that wait until the program uses less.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dracpu_agent.memory.existing import MEMORY_MAX, MEMS, in_force

_MARGIN: Final = 20  # a twentieth: what a program may need besides while its limit is lowered
_SMALLEST_STEP: Final = 20  # likewise of the limit: smaller steps are not worth a write
_PAGE: Final = 4096


class Step(NamedTuple):
    """A file of the container's cgroup and its next content."""

    file: str
    content: str


@dataclass(frozen=True, slots=True)
class Use:
    """How much a container uses, and which limits its cgroup has. All sizes are bytes."""

    used: int  # all that the limit counts
    clean: int  # the part of it that the kernel frees at once: files in memory that are on the disk, too
    limit: int
    nodes: str = ""  # the NUMA nodes that its cgroup names; "": those of its parent
    by_node: Mapping[int, int] = field(default_factory=dict)  # NUMA node -> ordinary memory
    pages: Mapping[int, int] = field(default_factory=dict)  # NUMA node -> memory in hugepages
    untouched: int = 0  # in hugepages that its processes have reserved, on nodes that are not known
    is_located: bool = True  # False: older kernels do not count on which nodes its memory or its hugepages are


def next_step(wanted: Mapping[str, str], use: Use, free: Mapping[int, int]) -> Step | None:
    """The next file to write; None when everything is right, or must wait. `free` is what each NUMA node can spare.

    A container is bound when its memory is limited to what it claims, as bound containers must be.
    """
    limit = int(wanted[MEMORY_MAX])
    if not _is_limited(limit, use):
        lower = max(limit, needed(use))
        is_worth_it = lower == limit or lower <= use.limit - use.limit // _SMALLEST_STEP
        return Step(MEMORY_MAX, str(lower)) if is_worth_it else None
    if MEMS not in wanted or _is_bound(wanted, use):
        return None
    return Step(MEMS, wanted[MEMS]) if _can_be_bound(wanted[MEMS], use, free) else None


def right(wanted: Mapping[str, str], use: Use) -> Mapping[str, str]:
    """Those of the wanted limits that the cgroup has. A lower limit of memory is as good: it can be raised at once."""
    found = {MEMORY_MAX: wanted[MEMORY_MAX]} if _is_limited(int(wanted[MEMORY_MAX]), use) else {}
    return found | ({MEMS: wanted[MEMS]} if _is_bound(wanted, use) else {})


def needed(use: Use) -> int:
    """The lowest limit that does not harm the container now, in whole pages."""
    least = max(0, use.used - use.clean)
    return -(-(least + -(-least // _MARGIN)) // _PAGE) * _PAGE


def _is_limited(limit: int, use: Use) -> bool:
    return use.limit <= limit


def _is_bound(wanted: Mapping[str, str], use: Use) -> bool:
    return MEMS in wanted and in_force({MEMS: wanted[MEMS]}, {MEMS: use.nodes})


def _can_be_bound(nodes: str, use: Use, free: Mapping[int, int]) -> bool:
    kept = {int(numa) for numa in nodes.split(",")}
    if not use.is_located or use.untouched or any(size for numa, size in use.pages.items() if numa not in kept):
        return False
    moving = sum(size for numa, size in use.by_node.items() if numa not in kept)
    # where less is free, the kernel moves a part, leaves nothing to others, and reports no error
    return not moving or moving + moving // _MARGIN <= sum(free.get(numa, 0) for numa in kept)

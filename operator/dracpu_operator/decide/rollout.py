"""Which nodes may be given other settings now, so that at most maxUnavailable are disturbed at a time. Pure.

Decisions depend only on what is stored: the settings that nodes were given and what their agents report. An operator
that restarts continues where the former one stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dracpu_api.conditions import Phase
from dracpu_api.objects.models import Rollout
from dracpu_operator.decide.records import CpuNode


@dataclass(frozen=True, slots=True)
class Member:
    """A node that follows a config; `cpu_node` is None before its first settings."""

    name: str
    cpu_node: CpuNode | None


def budget(rollout: Rollout, members: int) -> int:
    """How many nodes may be unavailable at once. A percentage is rounded up, and at least one node may change, so that
    every rollout makes progress."""
    limit = rollout.max_unavailable
    if isinstance(limit, str):
        limit = -(-members * int(limit.removesuffix("%")) // 100)
    return max(1, limit)


def next_nodes(rollout: Rollout, revision: str, members: Sequence[Member]) -> list[str]:
    """The nodes to give `revision` to now."""
    waiting = [member for member in members if member.cpu_node is None or member.cpu_node.given != revision]
    if rollout.paused:  # which holds back changes: first settings are not a change
        return [member.name for member in waiting if member.cpu_node is None]
    free = [member.name for member in waiting if _is_free(member.cpu_node)]
    charged = [member.name for member in waiting if not _is_free(member.cpu_node)]
    room = budget(rollout, len(members)) - unavailable(members)
    return free + charged[: max(0, room)]


def unavailable(members: Sequence[Member]) -> int:
    """How many nodes use the budget now."""
    return sum(member.cpu_node is not None and member.cpu_node.unavailable for member in members)


def _is_free(cpu_node: CpuNode | None) -> bool:
    """True when a change of the node uses no budget: it offers nothing yet, or is unavailable and counted already. So
    a corrected config reaches the nodes on which the former one failed."""
    if cpu_node is None or cpu_node.phase is None or cpu_node.unavailable:
        return True
    return cpu_node.starting and cpu_node.phase is Phase.FAILED

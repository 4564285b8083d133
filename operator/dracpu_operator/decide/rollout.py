"""Which nodes may be given other settings now, so that at most maxUnavailable are disturbed at a time. Pure.

Decisions depend only on what is stored: the settings that nodes were given, what their agents report, and what the
agents' pods show. An operator that restarts continues where the former one stopped.

A node without a ready agent is not disturbed by other settings, so it does not use the budget, unless its agent was
ready when the node was given its present settings: then these settings may be the reason, and other nodes must not
follow. A node that had no ready agent before gets its settings once it is back. If its agent cannot run at all, it gets
them after all other nodes, because they may be what the agent needs to run.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dracpu_api.conditions import Phase
from dracpu_api.objects.models import Rollout
from dracpu_operator.decide.records import Agent, CpuNode
from dracpu_operator.decide.times import time_of

PROBATION_SECONDS: Final = 600  # settings that end an agent do so within this time after the node was given them


@dataclass(frozen=True)  # without slots, so that answers are computed once
class Member:
    """A node that follows a config; `cpu_node` is None before its first settings."""

    name: str
    cpu_node: CpuNode | None
    agent: Agent | None = None  # None: nothing is known about agents
    up_to_date: bool = False  # it was given the config's present settings
    edited: bool = False  # somebody else has changed these settings since

    @cached_property
    def is_down(self) -> bool:
        """True when the node has no agent that is ready."""
        return self.agent is not None and not self.agent.ready

    @property
    def went_down(self) -> bool:
        """True when the agent was ready when the node was given its settings and is not since, so that these settings
        may be the reason. They are not when the agent has applied them and then was ready for a long time."""
        cpu_node = self.cpu_node
        if self.agent is None or self.agent.ready or cpu_node is None or cpu_node.was_ready is not True:
            return False
        return not cpu_node.arrived or _seconds_between(cpu_node.given_at, self.agent.since) <= PROBATION_SECONDS

    @cached_property
    def unavailable(self) -> bool:
        """True when the node uses the budget."""
        if self.cpu_node is None or self.cpu_node.phase is None or self.cpu_node.starting:
            return False
        return self.went_down if self.is_down else self.cpu_node.unavailable

    @cached_property
    def is_settled(self) -> bool:
        """True when there is nothing to do or to report about the node, whatever the time: it has applied the present
        settings, and neither it nor its agent has a problem. Of 15,000 nodes nearly all are settled."""
        cpu_node = self.cpu_node
        if cpu_node is None or not self.up_to_date or self.is_down:
            return False
        has_problem = bool(cpu_node.unreadable or cpu_node.troubles or cpu_node.memory_troubles or cpu_node.ignored)
        return cpu_node.arrived and cpu_node.phase in {Phase.READY, Phase.DRAINING, Phase.PENDING} and not has_problem


def budget(rollout: Rollout, members: int) -> int:
    """How many nodes may be unavailable at once. A percentage is rounded up, and at least one node may change, so that
    every rollout makes progress."""
    limit = rollout.max_unavailable
    if isinstance(limit, str):
        limit = -(-members * int(limit.removesuffix("%")) // 100)
    return max(1, limit)


def next_nodes(
    rollout: Rollout,
    members: Sequence[Member],
    *,
    leaving: int = 0,
    blocked: Collection[str] = (),
    refused: Collection[str] = (),
) -> list[str]:
    """The nodes to give the present settings to now. `leaving` nodes use the budget, too: they are about to lose their
    devices. `blocked` nodes have to wait for another reason, and `refused` ones come last: the API server refused to
    change them, and they must not take the places of others."""
    waiting = [member for member in members if not member.up_to_date and member.name not in blocked]
    if rollout.paused:  # which holds back changes: first settings are not a change
        return [member.name for member in waiting if member.cpu_node is None]
    free = [member.name for member in waiting if _is_free(member)]
    charged = [member.name for member in waiting if takes_place(member)]
    charged.sort(key=lambda name: name in refused)
    room = budget(rollout, len(members) + leaving) - unavailable(members) - leaving
    chosen = free + charged[: max(0, room)]
    if charged:
        return chosen
    return chosen + [member.name for member in waiting if not _is_free(member) and _cannot_run(member)]


def takes_place(member: Member) -> bool:
    """True when the node is available and a change of its settings takes a place of the budget."""
    return not _is_free(member) and not member.is_down


def unavailable(members: Sequence[Member]) -> int:
    """How many nodes use the budget now."""
    return sum(member.unavailable for member in members)


def _seconds_between(earlier: str, later: str) -> float:
    """Of two times in RFC 3339; 0 when one of them is not recorded."""
    begin, end = time_of(earlier), time_of(later)
    return 0.0 if begin is None or end is None else (end - begin).total_seconds()


def _is_free(member: Member) -> bool:
    """True when a change of the node uses no budget: it offers nothing yet, or is unavailable and counted already. So
    a corrected config reaches the nodes on which the former one failed."""
    cpu_node = member.cpu_node
    if cpu_node is None or cpu_node.phase is None or member.unavailable:
        return True
    return cpu_node.starting and cpu_node.phase is Phase.FAILED


def _cannot_run(member: Member) -> bool:
    """True when no process of the agent runs, for example because it ends at each start. An agent that runs and is not
    ready, or whose node is lost, may still offer devices: it waits until it is back."""
    return member.agent is not None and not member.agent.ready and not member.agent.running

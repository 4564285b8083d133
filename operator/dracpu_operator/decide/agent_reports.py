"""Decides when status.agent of a CpuNode is written, with which contents, and with which Event. Pure: the time is an
argument.

15,000 nodes may change at once, and an agent of an earlier version removes status.agent whenever it writes: so there is
at most one write per node and minute. A restart of an agent takes some seconds and is not reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dracpu_api.events import Event
from dracpu_operator.decide.records import Agent, CpuNode
from dracpu_operator.decide.times import time_of

RESTART_SECONDS: Final = 10  # an agent that ended is ready again after this time, unless something is wrong
STABLE_SECONDS: Final = 30  # an agent that was not ready counts as ready again after it has been so for this time
_MESSAGE_LENGTH: Final = 1024
_AT_ONCE: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of status.agent, to be written from `due` on; None removes it."""

    agent: Mapping[str, Any] | None
    due: datetime
    event: Event | None


# written when the operator is no longer allowed to follow pods: a report that nobody updates may be wrong
_REMOVAL: Final = Report(None, _AT_ONCE, None)


def report_of(cpu_node: CpuNode, agent: Agent | None) -> Report | None:
    """The report to write; None when the one that is there is right. `agent` is None when nothing is known about
    agents."""
    before = cpu_node.reported_agent
    if agent is None:
        return _REMOVAL if before else None
    has_time = bool(before.get("since"))  # else somebody has written a report of their own
    if before.get("ready") == agent.ready and before.get("reason") == agent.reason and has_time:
        return None
    fields = {
        "ready": agent.ready,
        "reason": agent.reason,
        "message": agent.message[:_MESSAGE_LENGTH],
        "since": agent.since,
    }
    seconds = RESTART_SECONDS if not agent.ready else STABLE_SECONDS if before.get("ready") is False else 0
    since = time_of(agent.since) or _AT_ONCE
    return Report(fields, since + timedelta(seconds=seconds), _event(before, agent))


def _event(before: Mapping[str, Any], agent: Agent) -> Event | None:
    """The Event about an agent that was reported ready and is not, or the other way round."""
    if "ready" not in before or before["ready"] == agent.ready:
        return None
    if agent.ready:
        return Event("Normal", "AgentReady", "FollowAgent", "the agent is ready")
    note = f"the node has no ready agent: {agent.reason}: {agent.message}"
    return Event("Warning", "AgentNotReady", "FollowAgent", note)

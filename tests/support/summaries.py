"""Builds the statuses of configs from nodes in several states."""

from collections.abc import Mapping
from typing import Any

from fleets import config, cpu_node, node

from dracpu_operator.decide.agents import UNKNOWN, Agents
from dracpu_operator.decide.progress import Moment, Progress, progress_of
from dracpu_operator.decide.records import Agent, CpuNode
from dracpu_operator.decide.selection import Selected
from dracpu_operator.decide.summary import status_of

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
MINUTES_AGO, SECONDS_AGO = "2025-12-31T23:58:00Z", "2025-12-31T23:59:55Z"
WANTED = config().wanted
assert WANTED is not None
R = WANTED.revision


def at(now: str) -> Moment:
    """The moment of a reconcile."""
    return Moment(
        now,
        trouble_before="2025-12-31T23:59:30Z",
        silence_before="2025-12-31T23:55:00Z",
        unanswered_before="2025-12-31T23:58:30Z",
    )


def status_and_progress(
    selected: Selected,
    known: dict[str, CpuNode],
    now: str = NOW,
    agents: Agents = UNKNOWN,
    refused: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], Progress]:
    """The status of a config, and the progress of its rollout."""
    progress = progress_of(selected, known, at(now), agents, refused or {})
    return status_of(selected, known, progress, at(now)), progress


def following(*cpu_nodes: CpuNode, nodes: int | None = None, before: Any = None, **spec: Any) -> Selected:
    """A config, and the nodes that it selects: those with these CpuNodes, and others without one."""
    count = len(cpu_nodes) if nodes is None else nodes
    names = [cpu_node.name for cpu_node in cpu_nodes] + [f"more{number}" for number in range(count - len(cpu_nodes))]
    return Selected(config(status=before, **spec), [node(name) for name in names])


def status(
    *cpu_nodes: CpuNode,
    now: str = NOW,
    agents: Mapping[str, Agent] | None = None,
    refused: Mapping[str, str] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """The status of a config that these nodes follow."""
    known = {cpu_node.name: cpu_node for cpu_node in cpu_nodes}
    pods = Agents(agents or {}, (), known, now)
    return status_and_progress(following(*cpu_nodes, **others), known, now, pods, refused)[0]


def outcomes(written: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Each condition with its status and reason."""
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in written["conditions"]}


def message(written: dict[str, Any], kind: str) -> str:
    """The message of a condition."""
    return next(str(condition["message"]) for condition in written["conditions"] if condition["type"] == kind)


def done(name: str) -> CpuNode:
    """A node that has applied the settings."""
    return cpu_node(name, given=R, applied=R)


def failed(name: str, why: str = "no CPU 400") -> CpuNode:
    """A node that could not apply them."""
    return cpu_node(name, given=R, applied="r0", phase="Failed", failure=why)

"""The status of a config: counts, CPUs, and conditions whose messages name what to do. The time is an argument."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from dracpu_api.conditions import ConfigCondition, ConfigReason
from dracpu_api.resources import Json
from dracpu_operator.decide.progress import Moment, Progress
from dracpu_operator.decide.records import CpuNode
from dracpu_operator.decide.selection import Selected
from dracpu_operator.decide.status_changes import by_type

NAMED: Final = 3  # nodes that a message names; `kubectl get cpunodes` shows all


@dataclass(frozen=True, slots=True)
class Verdict:
    """The contents of a condition."""

    true: bool
    reason: ConfigReason
    message: str = ""


def status_of(
    selected: Selected, cpu_nodes: Mapping[str, CpuNode], progress: Progress, moment: Moment
) -> dict[str, Any]:
    """The whole status. A condition keeps its lastTransitionTime until its status changes."""
    config = selected.config
    cpus = [cpu_nodes[node.name].cpus for node in selected.nodes if node.name in cpu_nodes]
    before = by_type(config.status)
    return {
        "observedGeneration": config.generation,
        "nodes": {
            "selected": progress.selected,
            "applied": progress.applied,
            "progressing": progress.progressing,
            "failed": len(progress.failed),
            "withoutAgent": progress.without_agent,
        },
        "cpus": {name: sum(map(attrgetter(name), cpus)) for name in ("total", "reserved", "exclusive", "available")},
        "conditions": [
            _condition(kind, verdict, before.get(kind, {}), config.generation, moment.now)
            for kind, verdict in _verdicts(selected, progress).items()
        ],
    }


def _verdicts(selected: Selected, progress: Progress) -> dict[ConfigCondition, Verdict]:
    return {
        ConfigCondition.ACCEPTED: _accepted(selected),
        ConfigCondition.PROGRESSING: _progressing(selected, progress),
        ConfigCondition.AVAILABLE: _available(progress),
        ConfigCondition.DEGRADED: _degraded(progress),
        ConfigCondition.CONFLICTED: _conflicted(selected),
    }


def _accepted(selected: Selected) -> Verdict:
    problems = selected.config.problems
    if not problems:
        return Verdict(True, ConfigReason.VALID)
    message = f"{'; '.join(problems)}: correct it; until then nodes keep the settings that they have"
    return Verdict(False, ConfigReason.INVALID, message)


def _progressing(selected: Selected, progress: Progress) -> Verdict:
    wanted = selected.config.wanted
    if wanted is None:
        return Verdict(False, ConfigReason.NOT_ACCEPTED)
    if not progress.selected:
        return Verdict(False, ConfigReason.NO_NODES)
    done = f"{progress.applied} of {_nodes(progress.selected)} applied these settings"
    if wanted.spec.rollout.paused and progress.waiting:
        return Verdict(False, ConfigReason.PAUSED, f"{done}; to resume the rollout, set rollout.paused: false")
    if progress.waiting and progress.stuck >= progress.limit:
        message = (
            f"{done}; {_nodes(progress.stuck)} failed or stopped answering, and maxUnavailable allows "
            f"{progress.limit}: correct the settings, and the rollout continues by itself"
        )
        return Verdict(False, ConfigReason.STOPPED, message)
    return _advancing(progress, done)


def _advancing(progress: Progress, done: str) -> Verdict:
    if progress.ignored:
        settings = ", ".join(sorted({path for node in progress.ignored for path in node.ignored}))
        nodes = _some([node.name for node in progress.ignored[:NAMED]], progress.ignored)
        message = f"{done}; the agents of these nodes are older and ignore {settings}: upgrade the agents: {nodes}"
        return Verdict(True, ConfigReason.SETTINGS_IGNORED, message)
    if progress.busy:
        names = [cpu_node.name for cpu_node in progress.changing[:NAMED]]
        now = f"; changing now: {_some(names, progress.changing)}" if names else ""
        return Verdict(True, ConfigReason.ROLLING_OUT, f"{done}; at most {progress.limit} change at a time{now}")
    is_complete = progress.applied == progress.selected
    return Verdict(False, ConfigReason.COMPLETE if is_complete else ConfigReason.INCOMPLETE, done)


def _available(progress: Progress) -> Verdict:
    if not progress.selected:
        message = "no node follows this config: does its nodeSelector match the nodes' labels?"
        return Verdict(False, ConfigReason.NO_NODES, message)
    message = f"{progress.serving} of {_nodes(progress.selected)} offer CPUs"
    # at least one: a config with one node and maxUnavailable 1 would be available without any node
    if progress.serving >= max(1, progress.selected - progress.limit):
        return Verdict(True, ConfigReason.ENOUGH_NODES, message)
    return Verdict(False, ConfigReason.TOO_FEW_NODES, f"{message}: `kubectl get cpunodes` shows the others")


def _degraded(progress: Progress) -> Verdict:
    parts = list(_troubles(progress))
    if not parts:
        return Verdict(False, ConfigReason.NO_FAILURES)
    return Verdict(True, parts[0][0], "; ".join(text for _, text in parts))


def _troubles(progress: Progress) -> Iterator[tuple[ConfigReason, str]]:
    """What is wrong, the worst first."""
    failed = [node for node in progress.failed if not node.unreadable]  # those are reported as frozen
    if failed:
        failures = [f"{node.name}: {node.failure or 'no reason was reported'}" for node in failed[:NAMED]]
        text = f"{_nodes(len(failed))} failed and kept the last good settings: {_some(failures, failed)}"
        yield ConfigReason.NODES_FAILED, text
    if progress.down:
        agents = [f"{agent.name}: {agent.reason}: {agent.message}" for agent in progress.down[:NAMED]]
        count = "1 node has" if len(progress.down) == 1 else f"{len(progress.down)} nodes have"
        yield ConfigReason.AGENTS_NOT_READY, f"{count} no ready agent: {_some(agents, progress.down)}"
    if progress.unanswered:
        silent = [f"{node.name}: since {node.given_at}" for node in progress.unanswered[:NAMED]]
        text = (
            f"the agents of {_nodes(len(progress.unanswered))} are ready and have not answered their settings: "
            f"{_some(silent, progress.unanswered)}: look into their logs, they may not reach the API server"
        )
        yield ConfigReason.AGENTS_NOT_READY, text
    if progress.troubled:
        troubles = [
            f"{node.name}: {', '.join(trouble.message for trouble in node.troubles)}"
            for node in progress.troubled[:NAMED]
        ]
        text = f"{_nodes(len(progress.troubled))} cannot serve claims: {_some(troubles, progress.troubled)}"
        yield ConfigReason.NODES_IN_TROUBLE, text
    if progress.frozen:
        reasons = [f"{node.name}: {node.unreadable}" for node in progress.frozen[:NAMED]]
        text = (
            f"{_nodes(len(progress.frozen))} are left as they are, because their CpuNodes cannot be decoded (a newer "
            f"version made them, or somebody edited them): {_some(reasons, progress.frozen)}"
        )
        yield ConfigReason.NODES_FROZEN, text
    if progress.refused:
        refusals = [f"{node}: {why}" for node, why in progress.refused[:NAMED]]
        count = _nodes(len(progress.refused))
        text = f"the API server refused the CpuNodes of {count}: {_some(refusals, progress.refused)}"
        yield ConfigReason.NODES_REFUSED, text
    if progress.leaving:
        leaving = [f"{node.name}: {_leaves(node)}" for node in progress.leaving[:NAMED]]
        text = (
            f"no config selects {_nodes(len(progress.leaving))} any more, which will lose their devices: "
            f"{_some(leaving, progress.leaving)}: to keep them, correct the nodeSelector or the nodes' labels, or set "
            "rollout.paused: true"
        )
        yield ConfigReason.NODES_LEAVING, text


def _leaves(cpu_node: CpuNode) -> str:
    return f"after {cpu_node.remove_after}" if cpu_node.remove_after else "later"


def _conflicted(selected: Selected) -> Verdict:
    if not selected.lost:
        return Verdict(False, ConfigReason.NO_CONFLICT)
    losses = [
        f"{_nodes(len(lost))} ({_some(lost[:NAMED], lost)}) lost to {winner}, which has the same priority and comes "
        "first by age or name"
        for winner, lost in sorted(selected.lost.items())
    ]
    message = f"{'; '.join(losses)}: give one config a higher priority, or narrow a nodeSelector"
    return Verdict(True, ConfigReason.SAME_PRIORITY, message)


def _condition(kind: ConfigCondition, verdict: Verdict, before: Json, generation: int, now: str) -> dict[str, Any]:
    status = "True" if verdict.true else "False"
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
        "reason": verdict.reason,
        "message": verdict.message,
    }


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _some(named: Iterable[str], everything: Sequence[object]) -> str:
    more = len(everything) - NAMED
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")

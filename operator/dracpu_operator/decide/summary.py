"""The status of a config: counts, CPUs, and conditions whose messages name what to do. The time is an argument."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, TypeVar

from dracpu_api.conditions import ConfigCondition, ConfigReason
from dracpu_api.memory_kinds import KINDS
from dracpu_api.quantity import format_binary
from dracpu_api.resources import Json
from dracpu_operator.decide.progress import Moment, Progress
from dracpu_operator.decide.records import CpuNode, sums_by_kind
from dracpu_operator.decide.selection import Selected
from dracpu_operator.decide.status_changes import by_type

_T = TypeVar("_T")

_LEAVING: Final = (
    "no config selects {count} any more, which will lose their devices: {named}: to keep them, correct the "
    "nodeSelector or the nodes' labels, or set rollout.paused: true"
)
_PAUSED_LEAVING: Final = (
    "no config selects {count} any more, which keep their devices while rollout.paused is true: {named}: to keep them "
    "also afterwards, correct the nodeSelector or the nodes' labels"
)

OPTIONAL: Final = frozenset({"memory"})  # fields of a status that are absent when there is nothing to report
_MESSAGE_LENGTH: Final = 32_768  # the API server refuses a longer one
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
    present = [cpu_nodes[node.name] for node in selected.nodes if node.name in cpu_nodes]
    cpus = [cpu_node.cpus for cpu_node in present]
    memory = _memory(present)
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
        **({"memory": memory} if memory else {}),
        "conditions": [
            _condition(kind, verdict, before.get(kind, {}), config.generation, moment.now)
            for kind, verdict in _verdicts(selected, progress).items()
        ],
    }


def _memory(cpu_nodes: Iterable[CpuNode]) -> list[dict[str, str]]:
    """Exact sums, ordinary memory first."""
    sums = sums_by_kind(found for cpu_node in cpu_nodes for found in cpu_node.memory)
    return [
        {
            "kind": found.kind,
            "total": format_binary(found.total),
            "reserved": format_binary(found.reserved),
            "promised": format_binary(found.promised),
            "available": format_binary(found.available),
        }
        for found in sorted(sums, key=lambda found: KINDS.index(found.kind))
    ]


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
    yield from _about(
        [node for node in progress.failed if not node.unreadable],  # those are reported as frozen
        lambda node: f"{node.name}: {node.failure or 'no reason was reported'}",
        ConfigReason.NODES_FAILED,
        "{count} failed and kept the last good settings: {named}",
    )
    yield from _about(
        progress.down,
        lambda agent: f"{agent.name}: {agent.reason}: {agent.message}",
        ConfigReason.AGENTS_NOT_READY,
        "no agent is ready on {count}: {named}",
    )
    yield from _about(
        progress.unanswered,
        lambda node: f"{node.name}: since {node.given_at}",
        ConfigReason.AGENTS_NOT_READY,
        "the agents of {count} are ready and have not answered their settings: {named}: look into their logs, they may "
        "not reach the API server",
    )
    yield from _about(
        progress.troubled,
        lambda node: f"{node.name}: {', '.join(trouble.message for trouble in node.troubles)}",
        ConfigReason.NODES_IN_TROUBLE,
        "{count} cannot serve claims: {named}",
    )
    yield from _about(
        progress.memory_troubled,
        lambda node: f"{node.name}: {', '.join(trouble.message for trouble in node.memory_troubles)}",
        ConfigReason.MEMORY_NOT_READY,
        "{count} cannot serve all claims of memory: {named}",
    )
    yield from _about(
        progress.frozen,
        lambda node: f"{node.name}: {node.unreadable}",
        ConfigReason.NODES_FROZEN,
        "{count} are left as they are, because their CpuNodes cannot be decoded (a newer version made them, or "
        "somebody edited them): {named}",
    )
    yield from _about(
        progress.refused,
        lambda refused: f"{refused[0]}: {refused[1]}",
        ConfigReason.NODES_REFUSED,
        "the API server refused the CpuNodes of {count}: {named}",
    )
    yield from _about(
        progress.leaving,
        _when_it_leaves if not progress.paused else lambda node: node.name,
        ConfigReason.NODES_LEAVING,
        _PAUSED_LEAVING if progress.paused else _LEAVING,
    )


def _when_it_leaves(node: CpuNode) -> str:
    return f"{node.name}: {f'after {node.remove_after}' if node.remove_after else 'later'}"


def _about(
    nodes: Sequence[_T], describe: Callable[[_T], str], reason: ConfigReason, text: str
) -> Iterator[tuple[ConfigReason, str]]:
    """The text about nodes that have the same problem, if there are any."""
    if nodes:
        yield reason, text.format(count=_nodes(len(nodes)), named=_some(map(describe, nodes[:NAMED]), nodes))


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
        "message": verdict.message[:_MESSAGE_LENGTH],
    }


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _some(named: Iterable[str], everything: Sequence[object]) -> str:
    more = len(everything) - NAMED
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")

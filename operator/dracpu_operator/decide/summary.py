"""The status of a config: counts, CPUs and conditions that name what to do. Pure: the time is passed in."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dracpu_api.resources import Json
from dracpu_operator.decide.records import CpuNode, Phase, Trouble
from dracpu_operator.decide.rollout import budget
from dracpu_operator.decide.selection import Selected

NAMED: Final = 3  # nodes that a message names; `kubectl get cpunodes` shows all

ACCEPTED: Final = "Accepted"
PROGRESSING: Final = "Progressing"
AVAILABLE: Final = "Available"
DEGRADED: Final = "Degraded"
CONFLICTED: Final = "Conflicted"

_BAD_AT_FIRST: Final = frozenset({"Invalid", "Stopped", "NodesFailed", "NodesInTrouble", "SamePriority"})
_BAD: Final = _BAD_AT_FIRST | {"TooFewNodes"}  # at first that is only the beginning


@dataclass(frozen=True, slots=True)
class Moment:
    """When a status is made, and what counts as lasting then: agents and runtimes restart, which is no trouble."""

    now: str  # all three RFC 3339 in UTC, which sorts as text
    trouble_before: str
    silence_before: str

    def has_lasted(self, trouble: Trouble, phase: Phase) -> bool:
        """True when a node's trouble is no passing one."""
        return trouble.since <= (self.silence_before if phase is Phase.SILENT else self.trouble_before)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition before it has a time."""

    type: str
    true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A config's nodes by how far they are."""

    selected: int
    applied: int
    changing: tuple[CpuNode, ...]  # given the present settings, and not done with them
    failed: tuple[CpuNode, ...]
    troubled: tuple[CpuNode, ...]  # of the others
    waiting: int  # not given the present settings yet
    serving: int  # claims can get CPUs of these
    limit: int
    is_passing: bool  # somewhere there is trouble that may become a lasting one

    @property
    def progressing(self) -> int:
        """Nodes that are about to apply the present settings."""
        return self.selected - self.applied - len(self.failed)


def progress_of(selected: Selected, cpu_nodes: Mapping[str, CpuNode], moment: Moment) -> Progress:
    """Counts the nodes of a config."""
    wanted = selected.config.wanted
    revision = wanted.revision if wanted else None
    there = [cpu_nodes[node.name] for node in selected.nodes if node.name in cpu_nodes]
    failed = tuple(one for one in there if one.phase is Phase.FAILED)
    given = [one for one in there if one.given == revision]
    applied = [one for one in given if one.arrived and one.phase not in {Phase.SETTLING, Phase.FAILED}]
    done = {one.name for one in (*applied, *failed)}
    in_trouble = [one for one in there if one.troubles]
    lasting = [one for one in in_trouble if any(moment.has_lasted(trouble, one.phase) for trouble in one.troubles)]
    unfit = {one.name for one in lasting}
    return Progress(
        selected=len(selected.nodes),
        applied=len(applied),
        changing=tuple(one for one in given if one.name not in done),
        failed=failed,
        troubled=tuple(one for one in lasting if one.phase is not Phase.FAILED),
        waiting=len(selected.nodes) - len(given),
        serving=sum(
            one.applied is not None and one.phase is not Phase.SETTLING and one.name not in unfit for one in there
        ),
        limit=budget(wanted.spec.rollout, len(selected.nodes)) if wanted else 1,
        is_passing=len(lasting) < len(in_trouble),
    )


def status_of(
    selected: Selected, cpu_nodes: Mapping[str, CpuNode], progress: Progress, moment: Moment
) -> dict[str, Any]:
    """The whole status; a condition keeps its time as long as its status stays what it was."""
    config = selected.config
    cpus = [cpu_nodes[node.name].cpus for node in selected.nodes if node.name in cpu_nodes]
    before = _by_type(config.status)
    return {
        "observedGeneration": config.generation,
        "nodes": {
            "selected": progress.selected,
            "applied": progress.applied,
            "progressing": progress.progressing,
            "failed": len(progress.failed),
        },
        "cpus": {
            name: sum(getattr(one, name) for one in cpus) for name in ("total", "reserved", "exclusive", "available")
        },
        "conditions": [
            _condition(verdict, before.get(verdict.type, {}), config.generation, moment.now)
            for verdict in verdicts(selected, progress)
        ],
    }


def verdicts(selected: Selected, progress: Progress) -> list[Verdict]:
    """The conditions, in the order in which people read them."""
    return [
        _accepted(selected),
        _progressing(selected, progress),
        _available(progress),
        _degraded(progress),
        _conflicted(selected),
    ]


def is_same(one: Json, other: Json) -> bool:
    """True when the statuses differ in nothing but the order of their conditions."""
    return {**one, "conditions": _by_type(one)} == {**other, "conditions": _by_type(other)}


def is_urgent(status: Json, before: Json) -> bool:
    """True when somebody waits for this change; other changes are gathered."""
    if status.get("observedGeneration") != before.get("observedGeneration"):
        return True
    told = _by_type(before)
    return any(_spoken(one) != _spoken(told.get(kind)) for kind, one in _by_type(status).items())


@dataclass(frozen=True, slots=True)
class Announcement:
    """An Event about a config."""

    severity: str  # Normal or Warning
    reason: str
    note: str


def announcements(status: Json, before: Json) -> list[Announcement]:
    """What is worth an Event: a condition that speaks otherwise than before. At first, only what is wrong."""
    told = _by_type(before)
    return [
        Announcement("Warning" if one["reason"] in _BAD else "Normal", one["reason"], one["message"])
        for kind, one in _by_type(status).items()
        if _spoken(one) != _spoken(told.get(kind))
        and one["message"]
        and (kind in told or one["reason"] in _BAD_AT_FIRST)
    ]


def _accepted(selected: Selected) -> Verdict:
    problems = selected.config.problems
    if problems:
        message = f"{'; '.join(problems)}: put it right; until then nodes keep the settings that they have"
        return Verdict(ACCEPTED, False, "Invalid", message)
    return Verdict(ACCEPTED, True, "Valid", "")


def _progressing(selected: Selected, progress: Progress) -> Verdict:
    wanted = selected.config.wanted
    done = f"{progress.applied} of {_nodes(progress.selected)} applied these settings"
    if wanted is None:
        return Verdict(PROGRESSING, False, "NotAccepted", "")
    if not progress.selected:
        return Verdict(PROGRESSING, False, "NoNodes", "")
    if wanted.spec.rollout.paused and progress.waiting:
        return Verdict(PROGRESSING, False, "Paused", f"{done}; the rollout goes on with rollout.paused: false")
    if progress.waiting and len(progress.failed) >= progress.limit:
        message = (
            f"{done}; {_nodes(len(progress.failed))} failed, and maxUnavailable allows {progress.limit}: put the "
            "settings right, and the rollout goes on by itself"
        )
        return Verdict(PROGRESSING, False, "Stopped", message)
    if progress.progressing:
        names = [one.name for one in progress.changing[:NAMED]]
        now = f"; changing now: {_several(names, progress.changing)}" if names else ""
        return Verdict(PROGRESSING, True, "RollingOut", f"{done}; at most {progress.limit} change at a time{now}")
    return Verdict(PROGRESSING, False, "Incomplete" if progress.failed else "Complete", done)


def _available(progress: Progress) -> Verdict:
    if not progress.selected:
        return Verdict(AVAILABLE, False, "NoNodes", "no node follows this config: do labels and nodeSelector match?")
    message = f"{progress.serving} of {_nodes(progress.selected)} offer CPUs"
    # with one node and maxUnavailable 1, none at all would be enough
    if progress.serving >= max(1, progress.selected - progress.limit):
        return Verdict(AVAILABLE, True, "EnoughNodes", message)
    return Verdict(AVAILABLE, False, "TooFewNodes", f"{message}: `kubectl get cpunodes` shows the others")


def _degraded(progress: Progress) -> Verdict:
    parts = []
    if progress.failed:
        each = [f"{one.name}: {one.failure or 'it does not say why'}" for one in progress.failed[:NAMED]]
        count = _nodes(len(progress.failed))
        parts.append(f"{count} failed, where the last good settings stay in force: {_several(each, progress.failed)}")
    if progress.troubled:
        each = [f"{one.name}: {', '.join(it.words for it in one.troubles)}" for one in progress.troubled[:NAMED]]
        parts.append(f"{_nodes(len(progress.troubled))} cannot serve claims: {_several(each, progress.troubled)}")
    if not parts:
        return Verdict(DEGRADED, False, "NoFailures", "")
    return Verdict(DEGRADED, True, "NodesFailed" if progress.failed else "NodesInTrouble", "; ".join(parts))


def _conflicted(selected: Selected) -> Verdict:
    if not selected.lost:
        return Verdict(CONFLICTED, False, "NoConflict", "")
    each = [
        f"{_nodes(len(lost))} ({_several(lost[:NAMED], lost)}) lost to {winner}, which has the same priority and "
        "comes first by age or name"
        for winner, lost in sorted(selected.lost.items())
    ]
    message = f"{'; '.join(each)}: give one config a higher priority, or narrow a nodeSelector"
    return Verdict(CONFLICTED, True, "SamePriority", message)


def _condition(verdict: Verdict, before: Json, generation: int, now: str) -> dict[str, Any]:
    status = "True" if verdict.true else "False"
    kept = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": verdict.type,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": kept or now,
        "reason": verdict.reason,
        "message": verdict.message,
    }


def _spoken(condition: Json | None) -> tuple[str, str] | None:
    return None if condition is None else (condition["status"], condition["reason"])


def _by_type(status: Json) -> dict[str, Json]:
    return {condition["type"]: condition for condition in status.get("conditions") or ()}


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _several(named: Iterable[str], everything: Sequence[object]) -> str:
    more = len(everything) - NAMED
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")

"""When a CpuNode's status must be written, and with which transition times. Pure: the time is passed in.

5,000 agents write these: what stands there already is not written again, and what changes often (counts, claims,
messages) is gathered. What people and the operator wait for (phase, applied revision, conditions) goes at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dracpu_api.resources import JsonObject

_URGENT_FIELDS: Final = ("phase", "appliedRevision")


@dataclass(frozen=True, slots=True)
class Written:
    """A write and its answer; they differ where the server prunes or defaults fields."""

    sent: Mapping[str, Any]
    stored: Mapping[str, Any]


def due_in(
    wanted: Mapping[str, Any],
    current: Mapping[str, Any],
    written: Written | None,
    *,
    since_write: float | None,
    interval: float,
) -> float | None:
    """Seconds until `wanted` must be written; None when it stands there already.

    `current` is what the server holds, `written` this process's last write of it, `since_write` how long ago that was.
    """
    if written is None:
        settled, before = same(wanted, current), current
    else:
        settled, before = same(wanted, written.sent) and same(current, written.stored), written.sent
    if settled:
        return None
    # compared with what was sent, not with what is there: whoever keeps changing our status gets no hasty answers
    if since_write is None or is_urgent(wanted, before):
        return 0.0
    return max(0.0, interval - since_write)


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Equal but for the times and the order of the conditions."""
    return _without_times(one) == _without_times(other)


def is_urgent(wanted: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """True when somebody waits for this change."""
    if any(wanted.get(name) != before.get(name) for name in _URGENT_FIELDS):
        return True
    return _verdicts(wanted) != _verdicts(before)


def with_transition_times(wanted: Mapping[str, Any], current: Mapping[str, Any], stamp: str) -> JsonObject:
    """The status to write: a condition keeps its time as long as its status stays what it was."""
    known = {condition["type"]: condition for condition in current.get("conditions") or ()}
    complete = dict(wanted)
    if "conditions" in wanted:
        complete["conditions"] = [_stamped(condition, known, stamp) for condition in wanted["conditions"]]
    return complete


def difference(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> JsonObject:
    """The merge patch that makes `current` what is wanted: null takes a field away, lists are replaced whole."""
    patch: JsonObject = {name: None for name in current if name not in wanted}
    for name, value in wanted.items():
        there = current.get(name)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            if nested := difference(value, there):
                patch[name] = nested
        elif name not in current or value != there:
            patch[name] = value
    return patch


def _stamped(condition: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], stamp: str) -> JsonObject:
    before = known.get(condition["type"], {})
    unchanged = before.get("status") == condition["status"]
    return {**condition, "lastTransitionTime": before.get("lastTransitionTime", stamp) if unchanged else stamp}


def _without_times(status: Mapping[str, Any]) -> JsonObject:
    conditions = [
        {name: value for name, value in condition.items() if name != "lastTransitionTime"}
        for condition in status.get("conditions") or ()
    ]
    return {**status, "conditions": sorted(conditions, key=lambda condition: str(condition["type"]))}


def _verdicts(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one.get("reason", "")) for one in status.get("conditions") or ()}

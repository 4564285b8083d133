"""Decides when a CpuNode's status is written, and with which transition times. Pure: the time is passed in.

5,000 agents write statuses, so an unchanged status is not written again, and frequent changes (counts, claims,
messages) are written together. Changes that people and the operator wait for (phase, applied revision, conditions) are
written at once. The operator writes other fields of the same status: they are not looked at here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dracpu_api.merge_patch import difference, only
from dracpu_api.resources import JsonObject

OWN_FIELDS: Final = frozenset(
    {
        "phase", "appliedRevision", "ignoredSettings", "agentVersion", "topology", "cpus", "memory", "claims",
        "claimsTotal", "conditions", "runtime",
    }
)  # fmt: skip
_URGENT_FIELDS: Final = ("phase", "appliedRevision", "ignoredSettings")


@dataclass(frozen=True, slots=True)
class Written:
    """A write and its answer, which differ if the server prunes or defaults fields."""

    sent: Mapping[str, Any]
    stored: Mapping[str, Any]


def due_in(
    desired: Mapping[str, Any],
    current: Mapping[str, Any],
    written: Written | None,
    *,
    since_write: float | None,
    interval: float,
) -> float | None:
    """Seconds until `desired` must be written; None if it need not be written.

    `current` is the server's status, `written` this process's last write, `since_write` the seconds since that write.
    """
    if written is None:
        up_to_date, before = equivalent(desired, current), current
    else:
        up_to_date = equivalent(desired, written.sent) and equivalent(current, written.stored)
        before = written.sent
    if up_to_date:
        return None
    # urgency is relative to our last write, so that someone who keeps changing the status causes no flood of writes
    if since_write is None or is_urgent(desired, before):
        return 0.0
    return max(0.0, interval - since_write)


def equivalent(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether the agent's fields are equal except for the times and the order of the conditions."""
    return _without_times(only(first, OWN_FIELDS)) == _without_times(only(second, OWN_FIELDS))


def is_urgent(desired: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether people or the operator wait for this change."""
    if any(desired.get(name) != before.get(name) for name in _URGENT_FIELDS):
        return True
    return _states(desired) != _states(before)


def with_transition_times(desired: Mapping[str, Any], current: Mapping[str, Any], stamp: str) -> JsonObject:
    """The status to write: a condition whose status is unchanged keeps its transition time."""
    known = {condition["type"]: condition for condition in current.get("conditions") or ()}
    complete = dict(desired)
    if "conditions" in desired:
        complete["conditions"] = [_stamped(condition, known, stamp) for condition in desired["conditions"]]
    return complete


def status_patch(desired: Mapping[str, Any], current: Mapping[str, Any]) -> JsonObject:
    """The merge patch for the agent's fields."""
    return difference(desired, only(current, OWN_FIELDS))


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


def _states(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    conditions = status.get("conditions") or ()
    return {condition["type"]: (condition["status"], condition.get("reason", "")) for condition in conditions}

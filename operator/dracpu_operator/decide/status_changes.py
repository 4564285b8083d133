"""Compares a config's new status with the former one: whether to write it, how soon, and with which Events."""

from typing import Final

from dracpu_api.conditions import ConfigReason
from dracpu_api.events import Event, Severity
from dracpu_api.resources import Json

_WARNINGS_AT_FIRST: Final = frozenset(
    {
        ConfigReason.INVALID,
        ConfigReason.STOPPED,
        ConfigReason.NODES_FAILED,
        ConfigReason.AGENTS_NOT_READY,
        ConfigReason.MEMORY_NOT_READY,
        ConfigReason.NODES_FROZEN,
        ConfigReason.NODES_IN_TROUBLE,
        ConfigReason.NODES_LEAVING,
        ConfigReason.NODES_REFUSED,
        ConfigReason.SAME_PRIORITY,
    }
)
# TooFewNodes is normal for a config that is new
_WARNINGS: Final = _WARNINGS_AT_FIRST | {ConfigReason.SETTINGS_IGNORED, ConfigReason.TOO_FEW_NODES}


def is_same(status: Json, other: Json) -> bool:
    """True when the statuses differ in nothing but the order of their conditions."""
    return {**status, "conditions": by_type(status)} == {**other, "conditions": by_type(other)}


def is_urgent(status: Json, before: Json) -> bool:
    """True when a person waits for this change: of a condition, or of the generation that was observed. Changes of
    counts may be collected."""
    if status.get("observedGeneration") != before.get("observedGeneration"):
        return True
    former = by_type(before)
    return any(_outcome(condition) != _outcome(former.get(kind)) for kind, condition in by_type(status).items())


def events_about(status: Json, before: Json) -> list[Event]:
    """An Event for each condition whose status or reason has changed. A config without a status before gets Events
    about problems only."""
    former = by_type(before)
    return [
        Event(_severity(condition), condition["reason"], "Reconcile", condition["message"])
        for kind, condition in by_type(status).items()
        if _outcome(condition) != _outcome(former.get(kind))
        and condition["message"]
        and (kind in former or condition["reason"] in _WARNINGS_AT_FIRST)
    ]


def by_type(status: Json) -> dict[str, Json]:
    """The conditions of a status by their type."""
    return {condition["type"]: condition for condition in status.get("conditions") or ()}


def _severity(condition: Json) -> Severity:
    return "Warning" if condition["reason"] in _WARNINGS else "Normal"


def _outcome(condition: Json | None) -> tuple[str, str] | None:
    return None if condition is None else (condition["status"], condition["reason"])

"""Converts between events of the core group, which are stored, and events of events.k8s.io, whose fields differ."""

from typing import Final

from dracpu_sandbox.apiserver.kinds.kind import JsonObject

_NAMES: Final = {  # events.k8s.io -> core
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
}
_BACK: Final = {core: new for new, core in _NAMES.items()}


def to_core(event: JsonObject) -> JsonObject:
    """Converts an event of events.k8s.io to an event of the core group, which is stored."""
    core = {_NAMES.get(name, name): value for name, value in event.items()}
    # the API server fills in the fields that clients of the core group read
    return {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        **core,
        "apiVersion": "v1",
    }


def from_core(event: JsonObject) -> JsonObject:
    """Converts a stored event to an event of events.k8s.io."""
    new = {_BACK.get(name, name): value for name, value in event.items()}
    return {**new, "apiVersion": "events.k8s.io/v1"}

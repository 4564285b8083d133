"""Times that built-in objects bear as null where nobody has told them.

Clients look for them: `kubectl get events --sort-by=.lastTimestamp` shows nothing at all without.
"""

from collections.abc import Iterable
from typing import Final

from dracpu_sandbox.apiserver.kinds.model import JsonObject

_CORE_EVENT: Final[JsonObject] = {
    "eventTime": None,
    "firstTimestamp": None,
    "lastTimestamp": None,
    "reportingComponent": "",
    "reportingInstance": "",
    "source": {},
}
_EVENT: Final[JsonObject] = {
    "eventTime": None,
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
    "deprecatedSource": {},
}
POD_CONDITION: Final = ("lastProbeTime", "lastTransitionTime")
NODE_CONDITION: Final = ("lastHeartbeatTime", "lastTransitionTime")


def core_event(event: JsonObject) -> JsonObject:
    """An event of the core group."""
    return {**_CORE_EVENT, **event}


def event(event: JsonObject) -> JsonObject:
    """An event of events.k8s.io."""
    return {**_EVENT, **event}


def with_times(status: JsonObject, times: Iterable[str]) -> JsonObject:
    """A status whose conditions all have these times."""
    conditions: list[JsonObject] | None = status.get("conditions")
    if not conditions:
        return status
    nothing = dict.fromkeys(times)
    return {**status, "conditions": [{**nothing, **one} for one in conditions]}

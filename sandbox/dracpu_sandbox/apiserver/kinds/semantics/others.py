"""Rules and defaults of namespaces, nodes, Events and Leases."""

from collections.abc import Iterator
from typing import Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.kind import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem

# fields that the server adds when a client omits them: `kubectl get events --sort-by=.lastTimestamp` reads them
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


def namespace_with_defaults(namespace: JsonObject) -> JsonObject:
    """Returns an active namespace with its name as a label."""
    metadata: JsonObject = namespace.get("metadata") or {}
    name = {"kubernetes.io/metadata.name": metadata["name"]} if metadata.get("name") else {}
    return {
        **namespace,
        "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **name}},
        "spec": {"finalizers": ["kubernetes"], **(namespace.get("spec") or {})},
        "status": {"phase": "Active", **(namespace.get("status") or {})},
    }


def node_with_defaults(node: JsonObject) -> JsonObject:
    """Returns a node; its allocatable resources default to its capacity."""
    status: JsonObject = node.get("status") or {}
    allocatable = {"allocatable": status["capacity"]} if status.get("capacity") else {}
    return {**node, "spec": node.get("spec") or {}, "status": {**allocatable, **status}}


def core_event_with_defaults(event: JsonObject) -> JsonObject:
    """Returns an event of the core group with all its times."""
    return {**_CORE_EVENT, **event}


def event_with_defaults(event: JsonObject) -> JsonObject:
    """Returns an event of events.k8s.io with all its times."""
    return {**_EVENT, **event}


def check_event(event: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """Yields the problems of an event of events.k8s.io."""
    if old is not None:
        return
    for name in ("eventTime", "reportingController", "reportingInstance", "action", "reason"):
        if not event.get(name):
            yield problems.required(name)
    if event.get("type") not in {"Normal", "Warning"}:
        yield problems.unsupported("type", event.get("type", ""), ("Normal", "Warning"))


def check_lease(lease: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """Yields the problems of a lease."""
    seconds = (lease.get("spec") or {}).get("leaseDurationSeconds", 1)
    if seconds < 1:
        yield problems.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")

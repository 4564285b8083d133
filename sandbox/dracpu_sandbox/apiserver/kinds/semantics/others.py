"""The other built-in kinds: little is demanded of them, and little filled in."""

import re
from collections.abc import Iterator
from typing import Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.model import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import names, nulls

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DATA: Final = ("data", "binaryData")
_IMMUTABLE: Final = "field is immutable when `immutable` is set"
_KEY: Final = "[-._a-zA-Z0-9]+"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
# Nodes that nobody describes further: these fields are always told
_NODE_INFO: Final = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
    "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


def namespace_with_defaults(namespace: JsonObject) -> JsonObject:
    """A namespace knows its name as a label, and that it is active."""
    metadata: JsonObject = namespace.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **({_NAME_LABEL: metadata["name"]} if metadata.get("name") else {})}
    return {
        **namespace,
        "metadata": {**metadata, "labels": labels},
        "spec": {"finalizers": ["kubernetes"], **(namespace.get("spec") or {})},
        "status": {"phase": "Active", **(namespace.get("status") or {})},
    }


def node_with_defaults(node: JsonObject) -> JsonObject:
    """A node offers what it has, unless it says less."""
    status: JsonObject = node.get("status") or {}
    filled = {
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        **status,
        "nodeInfo": {**dict.fromkeys(_NODE_INFO, ""), **(status.get("nodeInfo") or {})},
    }
    if status.get("capacity") and not status.get("allocatable"):
        filled["allocatable"] = status["capacity"]
    return {**node, "spec": node.get("spec") or {}, "status": nulls.with_times(filled, nulls.NODE_CONDITION)}


def check_node(node: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a node."""
    for number, taint in enumerate(node["spec"].get("taints") or ()):
        path = f"metadata.taints[{number}]"  # that is where the API server says they are
        yield from names.qualified(f"{path}.key", taint.get("key", ""))
        if taint.get("effect") not in _EFFECTS:
            yield problems.unsupported(f"{path}.effect", taint.get("effect", ""), _EFFECTS)


def check_config_map(item: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a ConfigMap."""
    for field in _DATA:
        for key in item.get(field) or ():
            if not re.fullmatch(_KEY, key):
                detail = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  "
                    f"or 'KEY_NAME',  or 'key-name', regex used for validation is '{_KEY}')"
                )
                yield problems.invalid(f"{field}[{key}]", key, detail)
    for key in sorted(set(item.get("data") or ()) & set(item.get("binaryData") or ())):
        yield problems.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    if old is None or not old.get("immutable"):
        return
    if not item.get("immutable"):
        yield problems.forbidden("immutable", _IMMUTABLE)
    for field in _DATA:
        if item.get(field) != old.get(field):
            yield problems.forbidden(field, _IMMUTABLE)


def check_lease(lease: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a lease."""
    spec = lease.get("spec") or {}
    for name, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        if name in spec and spec[name] < least:
            words = "greater than 0" if least else "greater than or equal to 0"
            yield problems.invalid(f"spec.{name}", spec[name], f"must be {words}")


def check_event(event: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with an event of events.k8s.io."""
    if old is not None:
        return
    if not event.get("eventTime"):
        yield problems.required("eventTime")
    for name in ("reportingController", "reportingInstance", "action", "reason"):
        if not event.get(name):
            yield problems.required(name)
        if name == "reportingController":
            yield from names.qualified(name, event.get(name, ""))
    if event.get("type") not in {"Normal", "Warning"}:
        yield problems.invalid("type", event.get("type", ""), "has invalid value: ")

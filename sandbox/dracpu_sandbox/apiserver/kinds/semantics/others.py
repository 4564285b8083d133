"""The other built-in kinds: little is demanded of them, and little filled in."""

import base64
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
    """What is wrong with a ConfigMap or a Secret."""
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


def check_secret(secret: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a Secret."""
    if old is not None and secret["type"] != old["type"]:
        yield problems.invalid("type", secret["type"], "field is immutable")
    yield from check_config_map(secret, old, subresource)


def secret_with_defaults(secret: JsonObject) -> JsonObject:
    """A secret's texts become data."""
    texts = secret.get("stringData") or {}
    data = {**(secret.get("data") or {}), **{key: _encoded(text) for key, text in texts.items()}}
    filled = {name: value for name, value in secret.items() if name != "stringData"}
    return {**filled, **({"data": data} if data else {}), "type": secret.get("type") or "Opaque"}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def service_with_defaults(service: JsonObject) -> JsonObject:
    """A service of the plainest sort."""
    spec = {"type": "ClusterIP", "sessionAffinity": "None", **(service.get("spec") or {})}
    spec = {"internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", **spec}
    if "clusterIP" in spec and "clusterIPs" not in spec:
        spec["clusterIPs"] = [spec["clusterIP"]]
    if "ports" in spec:
        spec["ports"] = [{"protocol": "TCP", "targetPort": one.get("port"), **one} for one in spec["ports"]]
    return {**service, "spec": spec, "status": {"loadBalancer": {}, **(service.get("status") or {})}}


def check_lease(lease: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a lease."""
    spec = lease.get("spec") or {}
    for name, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        if name in spec and spec[name] < least:
            words = "greater than 0" if least else "greater than or equal to 0"
            yield problems.invalid(f"spec.{name}", spec[name], f"must be {words}")


def check_role(role: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a Role or a ClusterRole."""
    for number, rule in enumerate(role.get("rules") or ()):
        if not rule.get("verbs"):
            yield problems.required(f"rules[{number}].verbs", "verbs must contain at least one value")


def check_binding(binding: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a RoleBinding or a ClusterRoleBinding."""
    if old is not None and binding.get("roleRef") != old.get("roleRef"):
        yield problems.invalid("roleRef", binding.get("roleRef"), "cannot change roleRef")


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


def allowed(review: JsonObject) -> JsonObject:
    """Everybody may do everything here."""
    return {**review, "status": {"allowed": True, "reason": "the sandbox allows everything"}}


def all_rules(review: JsonObject) -> JsonObject:
    """The same, as rules."""
    resources = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    return {**review, "status": {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}}


def administrator(review: JsonObject) -> JsonObject:
    """Nobody is asked who they are, so all are the same one."""
    return {**review, "status": {"userInfo": {"username": "sandbox", "groups": ["system:masters"]}}}

"""Separates the parts of an object that a write may change from the parts that the server sets."""

from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.refusal import Cause, bad_request, conflict, invalid

JsonObject = dict[str, Any]

NAMESPACES: Final = "namespaces"
NODES: Final = "nodes"
PODS: Final = "pods"
CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"

_SET_BY_SERVER: Final = (  # in the metadata
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
)
_STATUS_FROM_CREATOR: Final = {NODES}  # a kubelet registers its node with a status
_NEEDS_VERSION: Final = {CRDS, "leases.coordination.k8s.io"}
_OUTDATED: Final = "the object has been modified; please apply your changes to the latest version and try again"


def new_object(kind: Kind, namespace: str, name: str, body: JsonObject, *, uid: str, now: str) -> JsonObject:
    """Returns the new object for the body that its creator sent."""
    sent = body.get("metadata") or {}
    if sent.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    metadata = {**_set_by_writer(sent), "name": name, "uid": uid, "creationTimestamp": now}
    if namespace:
        metadata["namespace"] = namespace
    if kind.is_custom:
        metadata["generation"] = 1
    new = {**body, "metadata": metadata}
    if "status" in kind.subresources and kind.storage not in _STATUS_FROM_CREATOR:
        new.pop("status", None)
    return new


def with_allowed_changes(kind: Kind, live: JsonObject, requested: JsonObject, subresource: str) -> JsonObject:
    """Returns the stored object with the parts of `requested` that a write to it, or to its subresource, may change."""
    sent, stored = requested.get("metadata") or {}, live["metadata"]
    name = stored["name"]
    if sent.get("uid") and sent["uid"] != stored["uid"]:
        raise invalid(kind, name, Cause("metadata.uid", f'Invalid value: "{sent["uid"]}": field is immutable'))
    if sent.get("resourceVersion") and sent["resourceVersion"] != stored["resourceVersion"]:
        raise conflict(kind, name, _OUTDATED)
    if subresource == "status":
        return _with_status(live, requested)
    if subresource == "resize":
        return _with_resources(live, requested)
    kept = {key: stored[key] for key in (*_SET_BY_SERVER, "namespace") if key in stored}
    metadata = {**_set_by_writer(sent), "name": name, **kept}
    added = set(metadata.get("finalizers") or ()) - set(stored.get("finalizers") or ())
    if added and "deletionTimestamp" in stored:
        why = f"Forbidden: no new finalizers can be added if the object is being deleted: {', '.join(sorted(added))}"
        raise invalid(kind, name, Cause("metadata.finalizers", why, "FieldValueForbidden"))
    new = {**requested, "metadata": metadata}
    return _with_status(new, live) if "status" in kind.subresources and subresource != "binding" else new


def with_generation(kind: Kind, live: JsonObject, new: JsonObject) -> JsonObject:
    """Raises the generation of a custom object when more than its metadata and status has changed."""
    ignored = {"metadata", "status"} if "status" in kind.subresources else {"metadata"}
    if not kind.is_custom or _without_fields(new, ignored) == _without_fields(live, ignored):
        return new
    generation = int(live["metadata"].get("generation") or 0) + 1
    return {**new, "metadata": {**new["metadata"], "generation": generation}}


def needs_version(kind: Kind) -> bool:
    """Returns whether a replacement must name the version that it replaces."""
    return kind.is_custom or kind.storage in _NEEDS_VERSION


def _set_by_writer(sent: JsonObject) -> JsonObject:
    """Returns the metadata that a writer may set, without empty values."""
    return {key: value for key, value in sent.items() if key not in _SET_BY_SERVER and value not in (None, [], {})}


def _with_status(target: JsonObject, source: JsonObject) -> JsonObject:
    """Returns the target with the status of the source."""
    return {**target, "status": source["status"]} if "status" in source else _without_fields(target, {"status"})


def _with_resources(live: JsonObject, requested: JsonObject) -> JsonObject:
    """Returns a pod with the resources of its containers in the requested one; everything else stays as it is."""
    spec = dict(live["spec"])
    for group in ("containers", "initContainers"):
        sent = {item.get("name"): item for item in requested["spec"].get(group) or ()}
        if group in spec:
            spec[group] = [
                {**item, "resources": sent.get(item["name"], item).get("resources") or {}} for item in spec[group]
            ]
    return {**live, "spec": spec}


def _without_fields(value: JsonObject, names: set[str]) -> JsonObject:
    return {name: field for name, field in value.items() if name not in names}

"""What of an object a write may say, and what the server says itself: identity, versions, and which part is whose."""

from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.refusal import Cause, bad_request, conflict, invalid

JsonObject = dict[str, Any]

NAMESPACES: Final = "namespaces"
NODES: Final = "nodes"
PODS: Final = "pods"
CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"

_SERVERS: Final = (  # the metadata that only the server writes
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "resourceVersion",
)
_KEPT_BY_STATUS: Final = ("labels", "annotations", "finalizers", "ownerReferences")
METADATA_IN_STATUS: Final = {
    NODES: ("labels", "annotations", "finalizers"),
    PODS: ("labels", "annotations", "finalizers"),
}
_STATUS_FROM_CREATOR: Final = {NODES}  # a kubelet registers its node with a status
_WITH_GENERATION: Final = {
    PODS,
    CRDS,
    "deviceclasses.resource.k8s.io",
    "resourceslices.resource.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
}
_NEEDS_VERSION: Final = {CRDS, "leases.coordination.k8s.io"}  # built-in kinds that nobody may update blindly


def fresh(kind: Kind, namespace: str, name: str, body: JsonObject, *, uid: str, now: str) -> JsonObject:
    """A new object, from what its creator says."""
    said = body.get("metadata") or {}
    if said.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    metadata = {**_writers(said), "name": name, "uid": uid, "creationTimestamp": now}
    if namespace:
        metadata["namespace"] = namespace
    if counts_generations(kind):
        metadata["generation"] = 1
    new = {**body, "metadata": metadata}
    if "status" in kind.subresources and kind.storage not in _STATUS_FROM_CREATOR:
        new.pop("status", None)
    return new


def carried(kind: Kind, live: JsonObject, wanted: JsonObject, subresource: str) -> JsonObject:
    """What a write to an object or one of its subresources makes of it, in the part that it may write."""
    said, stored = wanted.get("metadata") or {}, live["metadata"]
    name = stored["name"]
    if said.get("uid") and said["uid"] != stored["uid"]:
        raise invalid(kind, name, Cause("metadata.uid", f'Invalid value: "{said["uid"]}": field is immutable'))
    if said.get("resourceVersion") and said["resourceVersion"] != stored["resourceVersion"]:
        raise conflict(kind, name, OUTDATED)
    servers = {key: stored[key] for key in _SERVERS if key in stored}
    metadata = {**_writers(said), "name": name, **servers}
    if "namespace" in stored:
        metadata["namespace"] = stored["namespace"]
    _refuse_new_finalizers(kind, stored, metadata)
    if subresource == "status":
        kept = tuple(key for key in _KEPT_BY_STATUS if key not in METADATA_IN_STATUS.get(kind.storage, ()))
        metadata = {key: value for key, value in metadata.items() if key not in kept}
        metadata.update({key: stored[key] for key in kept if key in stored})
        return _with_status({**live, "metadata": metadata}, wanted)
    new = {**wanted, "metadata": metadata}
    if subresource == "binding":
        return new
    return _with_status(new, live) if "status" in kind.subresources else new


OUTDATED: Final = "the object has been modified; please apply your changes to the latest version and try again"


def counts_generations(kind: Kind) -> bool:
    """Whether objects of a kind bear a generation."""
    return kind.is_custom or kind.storage in _WITH_GENERATION


def with_generation(kind: Kind, live: JsonObject, new: JsonObject) -> JsonObject:
    """The object with the next generation when what its writer wants has changed."""
    aside = {"metadata", "status"} if "status" in kind.subresources else {"metadata"}
    if not counts_generations(kind) or _less(new, aside) == _less(live, aside):
        return new
    generation = int(live["metadata"].get("generation") or 0) + 1
    return {**new, "metadata": {**new["metadata"], "generation": generation}}


def needs_version(kind: Kind) -> bool:
    """Whether a replacement must say which version it replaces."""
    return kind.is_custom or kind.storage in _NEEDS_VERSION


def blank(kind: Kind) -> JsonObject:
    """What a new object is compared with: built-in kinds always have a spec and a status."""
    if kind.is_custom:
        return {}
    spec = {"containers": None} if kind.storage == PODS else {}
    return {"metadata": {}, "spec": spec, "status": {}}


def _writers(said: JsonObject) -> JsonObject:
    """The metadata that a writer may say; what is empty is not there."""
    return {
        key: value for key, value in said.items() if key not in _SERVERS and value is not None and value not in ([], {})
    }


def _refuse_new_finalizers(kind: Kind, stored: JsonObject, metadata: JsonObject) -> None:
    if "deletionTimestamp" not in stored:
        return
    new = [one for one in metadata.get("finalizers") or () if one not in (stored.get("finalizers") or ())]
    if new:
        told = ", ".join(f'"{one}"' for one in new)
        why = "no new finalizers can be added if the object is being deleted, found new finalizers"
        raise invalid(
            kind,
            stored["name"],
            Cause("metadata.finalizers", f"Forbidden: {why} []string{{{told}}}", "FieldValueForbidden"),
        )


def _with_status(one: JsonObject, other: JsonObject) -> JsonObject:
    """The first object with the other's status."""
    if "status" in other:
        return {**one, "status": other["status"]}
    return _less(one, {"status"})


def _less(one: JsonObject, names: set[str]) -> JsonObject:
    return {name: value for name, value in one.items() if name not in names}

"""Deletion of objects: an object is removed at once, or stays for a while, marked as being deleted."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.refusal import bad_request, conflict, forbidden, not_supported
from dracpu_sandbox.apiserver.strategies import CRDS, NAMESPACES, PODS

JsonObject = dict[str, Any]

# the contents of these kinds are deleted first: then the garbage collector removes the finalizer
CONTENTS_FINALIZERS: Final[Mapping[str, str]] = {
    CRDS: "customresourcecleanup.apiextensions.k8s.io",
    NAMESPACES: "sandbox.dra.cpu/contents",
}
_DEFAULT_GRACE: Final = 30
_PERMANENT: Final = {"default", "kube-public", "kube-system"}


@dataclass(frozen=True, slots=True)
class Deletion:
    """The options of a DELETE request. Owned objects are always deleted in the background."""

    grace: int | None = None
    uid: str = ""
    version: str = ""
    dry_run: bool = False


def read_deletion(query: Mapping[str, str], body: Any) -> Deletion:
    """Reads the options from the query, or from DeleteOptions in the body."""
    options = body if isinstance(body, dict) else {}
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy") or "Background"
    if propagation != "Background":
        raise not_supported(f"the propagation policy {propagation!r} (use Background)")
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    required = options.get("preconditions") or {}
    try:
        seconds = None if grace is None else int(grace)
    except ValueError:
        raise bad_request(f"gracePeriodSeconds must be a number, not {grace!r}") from None
    return Deletion(
        seconds,
        required.get("uid") or "",
        required.get("resourceVersion") or "",
        bool(options.get("dryRun") or query.get("dryRun")),
    )


def check(kind: Kind, live: JsonObject, deletion: Deletion) -> None:
    """Raises RefusedError when the object may not be deleted, or differs from the preconditions."""
    metadata = live["metadata"]
    if kind.storage == NAMESPACES and metadata["name"] in _PERMANENT:
        raise forbidden(kind, metadata["name"], "this namespace may not be deleted")
    preconditions = (("UID", deletion.uid, "uid"), ("ResourceVersion", deletion.version, "resourceVersion"))
    for name, required, field in preconditions:
        if required and required != metadata[field]:
            why = f"the {name} in the precondition ({required}) does not match the {name} in record ({metadata[field]})"
            raise conflict(kind, metadata["name"], why)


def marked(kind: Kind, live: JsonObject, deletion: Deletion, now: datetime) -> JsonObject:
    """Returns the object marked as being deleted; `is_removable` decides whether it can be removed at once."""
    grace = _grace(kind, live, deletion)
    metadata = dict(live["metadata"])
    is_new = "deletionTimestamp" not in metadata
    if is_new or grace < metadata.get("deletionGracePeriodSeconds", 0):
        ends = (now + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
        if "generation" in metadata:
            metadata["generation"] += 1
        metadata |= {"deletionTimestamp": ends, "deletionGracePeriodSeconds": grace}
    if is_new and kind.storage in CONTENTS_FINALIZERS:
        metadata["finalizers"] = [*metadata.get("finalizers", ()), CONTENTS_FINALIZERS[kind.storage]]
    deleted = {**live, "metadata": metadata}
    if kind.storage == NAMESPACES:
        deleted["status"] = {**(live.get("status") or {}), "phase": "Terminating"}
    return deleted


def is_removable(stored: JsonObject) -> bool:
    """Returns whether the object is being deleted, its grace period is over, and it has no finalizers."""
    metadata = stored["metadata"]
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not waits


def _grace(kind: Kind, live: JsonObject, deletion: Deletion) -> int:
    """Returns the grace period in seconds; only pods that a kubelet may be running have a grace period."""
    spec, status = live.get("spec") or {}, live.get("status") or {}
    if kind.storage != PODS or not spec.get("nodeName") or status.get("phase") in {"Failed", "Succeeded"}:
        return 0
    if deletion.grace is not None:
        return max(deletion.grace, 0)
    own = spec.get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE if own is None else int(own)

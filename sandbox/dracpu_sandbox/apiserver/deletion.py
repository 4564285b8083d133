"""What becomes of an object that somebody deletes: it goes at once, or it stays for a while, marked."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.refusal import bad_request, conflict, forbidden
from dracpu_sandbox.apiserver.strategies import CRD_FINALIZER, CRDS, NAMESPACES, PODS

JsonObject = dict[str, Any]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_FINALIZER_OF: Final = {"Foreground": FOREGROUND, "Orphan": ORPHAN, "Background": ""}
_DEFAULT_GRACE: Final = 30
_IMMORTAL: Final = {"default", "kube-public", "kube-system"}


@dataclass(frozen=True, slots=True)
class Deletion:
    """How an object shall be deleted."""

    grace: int | None = None
    propagation: str = ""  # Background, Foreground, Orphan
    uid: str = ""
    version: str = ""
    dry_run: bool = False


def read_deletion(query: Mapping[str, str], body: Any) -> Deletion:
    """From a DELETE request: its query, or DeleteOptions in its body."""
    options = body if isinstance(body, dict) else {}
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy") or ""
    if options.get("orphanDependents") is True:
        propagation = "Orphan"
    if propagation and propagation not in _FINALIZER_OF:
        raise bad_request(f'invalid deletion propagation policy "{propagation}"')
    required = options.get("preconditions") or {}
    try:
        seconds = None if grace is None else int(grace)
    except ValueError:
        raise bad_request(f"gracePeriodSeconds is no number: {grace}") from None
    return Deletion(
        seconds,
        propagation,
        required.get("uid") or "",
        required.get("resourceVersion") or "",
        bool(options.get("dryRun") or query.get("dryRun")),
    )


def check(kind: Kind, live: JsonObject, deletion: Deletion) -> None:
    """Raises RefusedError when the object is not the one that shall be deleted."""
    metadata = live["metadata"]
    if kind.storage == NAMESPACES and metadata["name"] in _IMMORTAL:
        raise forbidden(kind, metadata["name"], "this namespace may not be deleted")
    if deletion.uid and deletion.uid != metadata["uid"]:
        why = "The object might have been deleted and then recreated"
        told = (
            f"the UID in the precondition ({deletion.uid}) does not match the UID in record ({metadata['uid']}). {why}"
        )
        raise conflict(kind, metadata["name"], told)
    version = metadata["resourceVersion"]
    if deletion.version and deletion.version != version:
        told = (
            f"the ResourceVersion in the precondition ({deletion.version}) does not match the ResourceVersion in "
            f"record ({version}). The object might have been modified"
        )
        raise conflict(kind, metadata["name"], told)


def marked(kind: Kind, live: JsonObject, deletion: Deletion, now: datetime) -> JsonObject:
    """The object on its way out; it may go at once when `may_go` says so of it."""
    grace = _grace(kind, live, deletion)
    metadata = live["metadata"]
    earlier = metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in metadata or (earlier is not None and grace < earlier):
        ends = (now + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
        generation = {"generation": metadata["generation"] + 1} if "generation" in metadata else {}
        metadata = {**metadata, **generation, "deletionTimestamp": ends, "deletionGracePeriodSeconds": grace}
    finalizers = [one for one in metadata.get("finalizers") or () if one not in {FOREGROUND, ORPHAN}]
    if deletion.propagation:
        mine = _FINALIZER_OF[deletion.propagation]
        finalizers += [mine] if mine else []
    else:
        finalizers = list(metadata.get("finalizers") or ())
    if kind.storage == CRDS and CRD_FINALIZER not in finalizers and "deletionTimestamp" not in live["metadata"]:
        finalizers.append(CRD_FINALIZER)  # objects of the kind go first
    metadata = {key: value for key, value in metadata.items() if key != "finalizers"}
    if finalizers:
        metadata["finalizers"] = finalizers
    doomed = {**live, "metadata": metadata}
    if kind.storage == NAMESPACES:
        doomed["status"] = {**(live.get("status") or {}), "phase": "Terminating"}
    return doomed


def may_go(kind: Kind, one: JsonObject) -> bool:
    """Whether nothing keeps an object any longer: it is deleted, its grace is over, its finalizers are done."""
    metadata = one["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if kind.storage == NAMESPACES:
        return not (one.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _grace(kind: Kind, live: JsonObject, deletion: Deletion) -> int:
    """Seconds; only pods have a grace, and only those that a kubelet may be running."""
    if kind.storage != PODS:
        return 0
    spec, status = live.get("spec") or {}, live.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in {"Failed", "Succeeded"}:
        return 0
    if deletion.grace is not None:
        return max(deletion.grace, 0)
    own = spec.get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE if own is None else int(own)

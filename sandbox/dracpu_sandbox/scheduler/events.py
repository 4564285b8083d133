"""Events and conditions of pods, as the control plane writes them."""

from datetime import UTC, datetime
from uuid import uuid4

from dracpu_sandbox.resources import JsonObject


def now() -> str:
    """This moment, in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_event(pod: JsonObject, *, reporter: str, reason: str, note: str, action: str, warning: bool) -> JsonObject:
    """An Event on a pod."""
    metadata = pod["metadata"]
    regarding = {"apiVersion": "v1", "kind": "Pod"} | {
        name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{uuid4().hex[:16]}", "namespace": metadata["namespace"]},
        "regarding": regarding,
        "reason": reason,
        "note": note[:1024],  # the API's limit
        "type": "Warning" if warning else "Normal",
        "action": action,
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": reporter,
        "reportingInstance": f"{reporter}-sandbox",
    }


def condition(kind: str, status: bool, reason: str = "", message: str = "") -> JsonObject:
    """A condition of a pod that has just changed."""
    found = {"type": kind, "status": "True" if status else "False", "lastTransitionTime": now()}
    return found | {name: text for name, text in (("reason", reason), ("message", message)) if text}


def has_condition(pod: JsonObject, wanted: JsonObject) -> bool:
    """Whether the pod says so already."""
    told = (pod.get("status") or {}).get("conditions") or ()
    return any(
        all(one.get(name) == wanted.get(name) for name in ("type", "status", "reason", "message")) for one in told
    )

"""What pods can do that other objects cannot: be bound to a node, show their logs."""

from typing import Any

from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.objects import Objects, Writing, timestamp
from dracpu_sandbox.apiserver.refusal import bad_request, conflict

JsonObject = dict[str, Any]

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def bind(objects: Objects, kind: Kind, namespace: str, name: str, binding: Any, writing: Writing) -> None:
    """Gives a pod its node; raises RefusedError when it has one, or must wait."""
    target = (binding or {}).get("target") or {}
    node = target.get("name")
    if not node or target.get("kind", "Node") != "Node":
        raise bad_request("a binding needs a target of kind Node")
    live = objects.get(kind, namespace, name).object
    if "deletionTimestamp" in live["metadata"]:
        raise conflict(kind, name, f"pod {name} is being deleted, cannot be assigned to a host")
    spec = live["spec"]
    if spec.get("nodeName"):
        raise conflict(kind, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict(kind, name, f"pod {name} has non-empty .spec.schedulingGates")
    wanted = ((binding.get("metadata") or {}).get("uid")) or live["metadata"]["uid"]
    if wanted != live["metadata"]["uid"]:
        told = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {live['metadata']['uid']}"
        raise conflict(kind, name, told)
    objects.patch(kind, namespace, name, lambda pod: _bound(pod, str(node)), writing, "binding")


def _bound(pod: JsonObject, node: str) -> JsonObject:
    status = pod.get("status") or {}
    conditions = [one for one in status.get("conditions") or () if one.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": timestamp()}
    return {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*conditions, scheduled]},
    }


def container_for_logs(objects: Objects, kind: Kind, namespace: str, name: str, asked: str) -> str:
    """The container whose logs are asked for; raises RefusedError when that is not clear."""
    pod = objects.get(kind, namespace, name).object
    names = [one["name"] for one in pod["spec"].get("containers") or ()]
    init = [one["name"] for one in pod["spec"].get("initContainers") or ()]
    chosen = asked or (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER, "")
    if not chosen:
        if len(names) != 1:
            listed = f"[{' '.join(names)}]" + (f" or one of the init containers: [{' '.join(init)}]" if init else "")
            raise bad_request(f"a container name must be specified for pod {name}, choose one of: {listed}")
        return str(names[0])
    if chosen not in (*names, *init):
        raise bad_request(f"container {chosen} is not valid for pod {name}")
    return str(chosen)

"""Requests that only pods support: bindings to nodes, and logs."""

from typing import Any

from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.objects import Objects, Writing, timestamp
from dracpu_sandbox.apiserver.refusal import bad_request, conflict

JsonObject = dict[str, Any]


def bind(objects: Objects, kind: Kind, namespace: str, name: str, binding: Any, writing: Writing) -> None:
    """Binds a pod to a node; raises RefusedError when the pod is bound or being deleted, or has another UID."""
    target = (binding or {}).get("target") or {}
    node = target.get("name")
    if not node or target.get("kind", "Node") != "Node":
        raise bad_request("a binding must have a target of kind Node, with the name of the node")
    live = objects.get(kind, namespace, name).object
    if "deletionTimestamp" in live["metadata"]:
        raise conflict(kind, name, f"pod {name} is being deleted, cannot be assigned to a host")
    spec = live["spec"]
    if spec.get("nodeName"):
        raise conflict(kind, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    required = ((binding.get("metadata") or {}).get("uid")) or live["metadata"]["uid"]
    if required != live["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {required}, UID in object meta: {live['metadata']['uid']}"
        raise conflict(kind, name, why)
    objects.patch(kind, namespace, name, lambda pod: _bound(pod, str(node)), writing, "binding")


def _bound(pod: JsonObject, node: str) -> JsonObject:
    status = pod.get("status") or {}
    conditions = [other for other in status.get("conditions") or () if other.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": timestamp()}
    return {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*conditions, scheduled]},
    }


def container_for_logs(objects: Objects, kind: Kind, namespace: str, name: str, requested: str) -> str:
    """Returns the container of a request for logs; raises RefusedError when it is unknown or ambiguous."""
    pod = objects.get(kind, namespace, name).object
    names = [container["name"] for container in pod["spec"].get("containers") or ()]
    init = [container["name"] for container in pod["spec"].get("initContainers") or ()]
    if not requested:
        if len(names) != 1:
            listed = " ".join((*names, *init))
            raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
        return str(names[0])
    if requested not in (*names, *init):
        raise bad_request(f"container {requested} is not valid for pod {name}")
    return requested

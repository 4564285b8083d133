"""The agents' DaemonSet and pods, for tests of the operator: as the controller, the scheduler and the kubelets write
them."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fake_api import FakeApi, JsonObject

NAMESPACE: Final = "dra-cpu-system"
LABELS: Final = {"app.kubernetes.io/name": "dra-cpu-operator", "app.kubernetes.io/component": "agent"}
READY: Final = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def ago(seconds: float = 60) -> str:
    """A time in the past."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(name: str, node: str, *, scheduled: bool = True, uid: str = "", created: str = "", **others: Any) -> JsonObject:
    """Returns a pod as the controller of DaemonSets creates it; `scheduled`: and as the scheduler binds it."""
    match = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": match}}}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": LABELS, "creationTimestamp": created or ago(), **others}
    if uid:
        metadata["uid"] = uid
    spec = {"affinity": affinity, "containers": [{"name": "agent", "image": "dracpu-agent"}]}
    return {"metadata": metadata, "spec": {**spec, **({"nodeName": node} if scheduled else {})}, "status": {}}


def status(
    state: JsonObject | None, *, since: str = "", ready: bool = False, last: JsonObject | None = None, restarts: int = 0
) -> JsonObject:
    """Returns the status of a pod whose container has this state; `last` is how it has ended before."""
    moment, text = since or ago(), str(ready)
    container = {"name": "agent", "ready": ready, "restartCount": restarts, "state": state or {}}
    if last is not None:
        container["lastState"] = {"terminated": last}
    return {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment},
            {"type": "Ready", "status": text, "lastTransitionTime": moment},
        ],
        "containerStatuses": [container],
    }


def unscheduled(message: str) -> JsonObject:
    """Returns the status of a pod that the scheduler cannot place."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [{**condition, "lastTransitionTime": ago()}]}


class AgentPods:
    """The DaemonSet and its pods, named agent-NODE."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def install(self, *nodes: str, desired: int | None = None) -> None:
        """Creates the DaemonSet, and a ready pod on each of the nodes."""
        counts = {"observedGeneration": 1, "desiredNumberScheduled": len(nodes) if desired is None else desired}
        metadata = {"name": "dracpu-agent", "labels": LABELS}
        self._api.add("daemonsets", {"metadata": metadata, "spec": {}, "status": counts}, namespace=NAMESPACE)
        for node in nodes:
            self.add(node)

    def uninstall(self) -> None:
        """Deletes the DaemonSet and all its pods."""
        self._api.remove("daemonsets", f"{NAMESPACE}/dracpu-agent")
        for body in self._api.all("pods"):
            self._api.remove("pods", f"{NAMESPACE}/{body['metadata']['name']}")

    def add(self, node: str) -> None:
        """Creates a ready pod."""
        self._api.add("pods", {**pod(f"agent-{node}", node), "status": status(READY, ready=True)})

    def report(self, node: str, found: JsonObject) -> None:
        """Replaces the status of a pod, as the kubelet does."""
        self._api.edit("pods", f"{NAMESPACE}/agent-{node}", lambda body: body.update(status=found))

    def remove(self, node: str) -> None:
        """Deletes a pod."""
        self._api.remove("pods", f"{NAMESPACE}/agent-{node}")

    def desire(self, count: int) -> None:
        """Changes for how many nodes the controller wants a pod."""
        self._api.edit(
            "daemonsets",
            f"{NAMESPACE}/dracpu-agent",
            lambda body: body["status"].update(desiredNumberScheduled=count),
        )

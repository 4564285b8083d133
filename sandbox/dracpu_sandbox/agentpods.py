"""Creates the agents' DaemonSet and its pods in the chart's namespace: kubectl shows the agents, and the operator
follows their pods.

No kubelet runs these pods: like the mirror pods of static pods, they only show processes that run anyway.
"""

import asyncio
import contextlib
from collections.abc import Collection
from typing import Final, NoReturn

import structlog

from dracpu_sandbox.client import ConflictError, KubeClient
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.events import now
from dracpu_sandbox.install import NAMESPACE
from dracpu_sandbox.resources import DAEMON_SETS, MIRROR_ANNOTATION, PODS, JsonObject, Resource

CONTAINER: Final = "agent"

_PREFIX: Final = "agent-"
_IMAGE: Final = "dracpu-agent"
_DAEMON_SET: Final = "dracpu-agent"
_LABELS: Final = {"app.kubernetes.io/name": "dra-cpu-operator", "app.kubernetes.io/component": "agent"}
_SPEC: Final = {"containers": [{"name": CONTAINER, "image": _IMAGE}], "tolerations": [{"operator": "Exists"}]}

log = structlog.get_logger("sandbox")


class AgentPods:
    """Keeps the DaemonSet of the agents and its pods up to date."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._changes: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self._starts: dict[str, int] = {}
        self._serving: set[str] = set()  # nodes

    async def create(self, nodes: Collection[str]) -> None:
        """Creates the DaemonSet and a pod for each node. A real DaemonSet does so before an agent starts, too."""
        await self._create(DAEMON_SETS, daemon_set())
        scheduled = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled")
        counts = {**dict.fromkeys(scheduled, len(nodes)), **self._ready()}
        await self._write_daemon_set({"observedGeneration": 1, "numberMisscheduled": 0, **counts})
        for node in nodes:
            await self._create(PODS, agent_pod(node))

    def changed(self, node: str, ready: bool) -> None:
        """Records that the agent of a node has started to serve, or has stopped."""
        self._changes.put_nowait((node, ready))

    async def run(self) -> NoReturn:
        """Writes the pods until it is cancelled."""
        while True:
            node, ready = await self._changes.get()
            try:
                await self._show(node, ready=ready)
            except SandboxError as error:  # a user may have deleted the pod or its namespace
                log.warning("cannot update the pod of the agent", node=node, error=str(error))

    async def _show(self, node: str, *, ready: bool) -> None:
        if ready:
            self._starts[node] = self._starts.get(node, 0) + 1
            self._serving.add(node)
        else:
            self._serving.discard(node)
        await self._create(PODS, agent_pod(node))  # a user may have deleted it
        status = agent_status(now(), self._starts.get(node, 0), ready=ready)
        await self._client.patch(PODS, _PREFIX + node, {"status": status}, NAMESPACE, subresource="status")
        await self._write_daemon_set(self._ready())

    async def _create(self, resource: Resource, body: JsonObject) -> None:
        with contextlib.suppress(ConflictError):
            await self._client.create(resource, body)

    async def _write_daemon_set(self, status: JsonObject) -> None:
        await self._client.patch(DAEMON_SETS, _DAEMON_SET, {"status": status}, NAMESPACE, subresource="status")

    def _ready(self) -> JsonObject:
        return dict.fromkeys(("numberReady", "numberAvailable"), len(self._serving))


def node_of_agent(namespace: str, pod: str) -> str | None:
    """Returns the node whose agent this pod shows, or None for any other pod."""
    return pod.removeprefix(_PREFIX) if namespace == NAMESPACE and pod.startswith(_PREFIX) else None


def daemon_set() -> JsonObject:
    """Returns the DaemonSet of the agents."""
    return {
        "apiVersion": DAEMON_SETS.api_version,
        "kind": DAEMON_SETS.kind,
        "metadata": {"name": _DAEMON_SET, "namespace": NAMESPACE, "labels": _LABELS},
        "spec": {"selector": {"matchLabels": _LABELS}, "template": {"metadata": {"labels": _LABELS}, "spec": _SPEC}},
    }


def agent_pod(node: str) -> JsonObject:
    """Returns the pod of a node's agent."""
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": _PREFIX + node,
            "namespace": NAMESPACE,
            "labels": _LABELS,
            "annotations": {MIRROR_ANNOTATION: node},
        },
        # without a grace period, so that deleting the pod does not wait for a kubelet
        "spec": {**_SPEC, "nodeName": node, "terminationGracePeriodSeconds": 0},
    }


def agent_status(moment: str, starts: int, *, ready: bool) -> JsonObject:
    """Returns the status of an agent's pod."""
    ended = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": moment}}
    state = {"running": {"startedAt": moment}} if ready else ended
    conditions = [
        {"type": kind, "status": str(ready), "lastTransitionTime": moment} for kind in ("Ready", "ContainersReady")
    ]
    container = {
        "name": CONTAINER,
        "ready": ready,
        "restartCount": max(0, starts - 1),
        "state": state,
        "image": _IMAGE,
        "imageID": "",
    }
    return {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}

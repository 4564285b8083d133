"""Creates a pod for each agent in the chart's namespace, so that kubectl shows the agents.

No kubelet runs these pods: like the mirror pods of static pods, they only show processes that run anyway.
"""

import asyncio
import contextlib
from typing import Final, NoReturn

import structlog

from dracpu_sandbox.client import ConflictError, KubeClient
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.events import now
from dracpu_sandbox.install import NAMESPACE
from dracpu_sandbox.resources import MIRROR_ANNOTATION, PODS, JsonObject

CONTAINER: Final = "agent"

_PREFIX: Final = "agent-"
_IMAGE: Final = "dracpu-agent"

log = structlog.get_logger("sandbox")


class AgentPods:
    """Keeps the pods of the agents up to date."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._changes: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self._starts: dict[str, int] = {}

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
        with contextlib.suppress(ConflictError):  # the pod exists since the agent's first start
            await self._client.create(PODS, agent_pod(node))
        status = agent_status(now(), self._starts.get(node, 0), ready=ready)
        await self._client.patch(PODS, _PREFIX + node, {"status": status}, NAMESPACE, subresource="status")


def node_of_agent(namespace: str, pod: str) -> str | None:
    """Returns the node whose agent this pod shows, or None for any other pod."""
    return pod.removeprefix(_PREFIX) if namespace == NAMESPACE and pod.startswith(_PREFIX) else None


def agent_pod(node: str) -> JsonObject:
    """Returns the pod of a node's agent."""
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": _PREFIX + node,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/component": "agent"},
            "annotations": {MIRROR_ANNOTATION: node},
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,  # so that deleting the pod does not wait for a kubelet
            "containers": [{"name": CONTAINER, "image": _IMAGE}],
            "tolerations": [{"operator": "Exists"}],
        },
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

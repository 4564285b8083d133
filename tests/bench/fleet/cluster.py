"""Fills a control plane with Nodes, agents' pods and their DaemonSet, and keeps kubelets reporting."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from helm_chart import NAMESPACE

from dracpu_api.resources import NODES, Json, JsonObject
from fleet import bodies
from fleet.api import MERGE, STRATEGIC, Api, each
from fleet.errors import RefusedError

PARALLEL: Final = 32
HEARTBEAT_SECONDS: Final = 300.0  # between two reports of a kubelet about its node, when nothing has changed
POD_SECONDS: Final = 600.0  # between two reports about an agent's pod; a pod that nothing happens to has fewer
_DAEMON_SETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True)
class Nodes:
    """The nodes of a cluster."""

    api: Api
    names: Sequence[str]
    daemon_set: JsonObject

    async def label(self, name: str, labels: Json) -> None:
        """Changes labels of a Node."""
        await self.api.send("PATCH", NODES.path(name), {"metadata": {"labels": labels}}, content_type=MERGE)

    async def report(self) -> None:
        """Sends the kubelets' reports at their usual rates, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(HEARTBEAT_SECONDS, self._beat))
            group.create_task(self._repeat(POD_SECONDS, self._touch))

    async def _repeat(self, seconds: float, send: Callable[[str], Coroutine[Any, Any, object]]) -> NoReturn:
        due = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for name in itertools.cycle(self.names):
                due += seconds / len(self.names)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(send(name))
        raise AssertionError("a cycle has no end")

    async def _beat(self, name: str) -> None:
        await self._patch(NODES.path(name, subresource="status"), bodies.node_conditions())

    async def _touch(self, name: str) -> None:
        ready = {"type": "Ready", "status": "True", "lastProbeTime": bodies.now()}
        await self._patch(f"{_PODS}/{_pod(name)}/status", [ready])

    async def _patch(self, path: str, conditions: Sequence[Json]) -> None:
        with contextlib.suppress(RefusedError):  # an API server that is overloaded; the next report comes soon
            await self.api.send("PATCH", path, {"status": {"conditions": conditions}}, content_type=STRATEGIC)


async def fill(api: Api, count: int) -> Nodes:
    """Creates the Nodes, and a ready agent on each."""
    (daemon_set,), _ = await api.items(_DAEMON_SETS)
    nodes = Nodes(api, bodies.names(count), daemon_set)
    status = bodies.pod_status(daemon_set["spec"]["template"])

    async def create(numbered: tuple[int, str]) -> None:
        number, name = numbered
        await api.send("POST", NODES.path(), bodies.node(name, number))
        await api.send("POST", _PODS, bodies.agent_pod(_pod(name), name, daemon_set))
        path = f"{_PODS}/{_pod(name)}/status"
        await api.send("PATCH", path, {"status": status}, content_type=STRATEGIC)

    await each(enumerate(nodes.names), create, PARALLEL)
    name = daemon_set["metadata"]["name"]
    counted = {"status": bodies.daemon_set_status(count)}
    await api.send("PATCH", f"{_DAEMON_SETS}/{name}/status", counted, content_type=MERGE)
    return nodes


async def object_bytes(api: Api, path: str) -> int:
    """The size of an object as JSON."""
    return len(json.dumps(await api.read(path), separators=(",", ":")))


def _pod(node: str) -> str:
    return f"dracpu-agent-{node.split('.', maxsplit=1)[0]}"

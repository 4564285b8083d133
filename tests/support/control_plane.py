"""The API server with the scheduler or the controllers, and short ways to use it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from dracpu_sandbox.apiserver.server import ApiServer
from dracpu_sandbox.client import STRATEGIC, KubeClient, NotFoundError
from dracpu_sandbox.resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    EVENTS,
    NODES,
    PODS,
    SLICES,
    JsonObject,
    Resource,
)

_RESOURCES = {one.kind: one for one in (CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES)}
_PATIENCE = 20.0


class Plane:
    """What a test does to a cluster, and waits for."""

    def __init__(self, server: ApiServer, client: KubeClient) -> None:
        self.server, self.client = server, client

    async def add(self, *bodies: JsonObject) -> None:
        """Creates objects; a status that they bring along is written too."""
        for body in bodies:
            resource, namespace = _RESOURCES[body["kind"]], body["metadata"].get("namespace", "")
            metadata = {name: value for name, value in body["metadata"].items() if name != "uid"}
            created = await self.client.create(resource, {**body, "metadata": metadata}, namespace)
            if "status" in body:
                await self.client.replace(resource, {**created, "status": body["status"]}, "status")

    async def change(self, body: JsonObject) -> None:
        """Another spec for an object that is there."""
        resource = _RESOURCES[body["kind"]]
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "")
        await self.client.patch(resource, name, {"spec": body["spec"]}, namespace)

    async def phase(self, name: str, phase: str) -> None:
        """What a kubelet reports of a pod."""
        patch = {"status": {"phase": phase}}
        await self.client.patch(PODS, name, patch, "default", subresource="status", kind=STRATEGIC)

    async def until(self, resource: Resource, name: str, holds: Callable[[JsonObject], Any]) -> JsonObject:
        """The object, as soon as this holds of it."""
        namespace = "default" if resource.namespaced else ""
        async with asyncio.timeout(_PATIENCE):
            async with contextlib.aclosing(self.client.follow(resource, namespace)) as events:
                async for event in events:
                    one = event.object
                    if event.type in {"ADDED", "MODIFIED"} and one["metadata"]["name"] == name and holds(one):
                        return one
        raise AssertionError("a watch does not end")

    async def until_gone(self, resource: Resource, name: str) -> None:
        """Waits for an object's end."""
        async with asyncio.timeout(_PATIENCE):
            async with contextlib.aclosing(self.client.follow(resource)) as events:
                async for event in events:
                    gone = event.type == "DELETED" and event.object["metadata"]["name"] == name
                    if gone or (event.type == "SYNCED" and not await self.exists(resource, name)):
                        return

    async def event(self, reason: str) -> JsonObject:
        """The first Event with this reason."""
        async with asyncio.timeout(_PATIENCE):
            async with contextlib.aclosing(self.client.follow(EVENTS)) as events:
                async for event in events:
                    if event.type == "ADDED" and event.object["reason"] == reason:
                        return event.object
        raise AssertionError("a watch does not end")

    async def exists(self, resource: Resource, name: str) -> bool:
        """Whether it is there."""
        try:
            await self.client.get(resource, name, "default" if resource.namespaced else "")
        except NotFoundError:
            return False
        return True

    async def bound(self, name: str) -> str:
        """The node of a pod, as soon as it has one."""
        pod = await self.until(PODS, name, lambda one: one["spec"].get("nodeName"))
        return str(pod["spec"]["nodeName"])

    async def refused(self, name: str, text: str = "") -> str:
        """Why a pod waits, as soon as this is said."""

        def message(pod: JsonObject) -> str:
            told = (pod.get("status") or {}).get("conditions") or ()
            return next((one["message"] for one in told if one["type"] == "PodScheduled" and one.get("message")), "")

        return message(await self.until(PODS, name, lambda one: message(one) and text in message(one)))


@contextlib.asynccontextmanager
async def control_plane(
    *parts: Callable[[KubeClient], Coroutine[Any, Any, None]], **options: Any
) -> AsyncIterator[Plane]:
    """An API server, and these parts at work on it."""
    async with (
        ApiServer(**options) as server,
        KubeClient(server.url) as ours,
        KubeClient(server.url) as theirs,
        asyncio.TaskGroup() as tasks,
    ):
        running = [tasks.create_task(part(theirs)) for part in parts]
        yield Plane(server, ours)
        for task in running:
            task.cancel()

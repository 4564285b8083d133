"""Runs the sandbox's API server with its scheduler or controllers, for tests that change objects and await results."""

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

_RESOURCES = {item.kind: item for item in (CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES)}
_TIMEOUT = 20.0


class Plane:
    """A control plane, with the changes that tests make to it and the states that they wait for."""

    def __init__(self, server: ApiServer, client: KubeClient) -> None:
        self.server, self.client = server, client

    async def add(self, *bodies: JsonObject) -> None:
        """Creates objects, and writes their status if they have one."""
        for body in bodies:
            resource, namespace = _RESOURCES[body["kind"]], body["metadata"].get("namespace", "")
            metadata = {name: value for name, value in body["metadata"].items() if name != "uid"}
            created = await self.client.create(resource, {**body, "metadata": metadata}, namespace)
            if "status" in body:
                await self.client.replace(resource, {**created, "status": body["status"]}, "status")

    async def change(self, body: JsonObject) -> None:
        """Changes the spec of an existing object."""
        resource = _RESOURCES[body["kind"]]
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "")
        await self.client.patch(resource, name, {"spec": body["spec"]}, namespace)

    async def phase(self, name: str, phase: str) -> None:
        """Sets the phase of a pod, as a kubelet does."""
        patch = {"status": {"phase": phase}}
        await self.client.patch(PODS, name, patch, "default", subresource="status", kind=STRATEGIC)

    async def until(self, resource: Resource, name: str, holds: Callable[[JsonObject], Any]) -> JsonObject:
        """Waits until a condition holds for an object, and returns the object."""
        namespace = "default" if resource.namespaced else ""
        async with asyncio.timeout(_TIMEOUT):
            async with contextlib.aclosing(self.client.follow(resource, namespace)) as events:
                async for event in events:
                    body = event.object
                    if event.type in {"ADDED", "MODIFIED"} and body["metadata"]["name"] == name and holds(body):
                        return body
        raise AssertionError("the watch ended")

    async def until_gone(self, resource: Resource, name: str) -> None:
        """Waits until an object does not exist any more."""
        async with asyncio.timeout(_TIMEOUT):
            async with contextlib.aclosing(self.client.follow(resource)) as events:
                async for event in events:
                    gone = event.type == "DELETED" and event.object["metadata"]["name"] == name
                    if gone or (event.type == "SYNCED" and not await self.exists(resource, name)):
                        return

    async def event(self, reason: str) -> JsonObject:
        """Waits for an Event with this reason, and returns it."""
        async with asyncio.timeout(_TIMEOUT):
            async with contextlib.aclosing(self.client.follow(EVENTS)) as events:
                async for event in events:
                    if event.type == "ADDED" and event.object["reason"] == reason:
                        return event.object
        raise AssertionError("the watch ended")

    async def exists(self, resource: Resource, name: str) -> bool:
        """Returns whether an object exists."""
        try:
            await self.client.get(resource, name, "default" if resource.namespaced else "")
        except NotFoundError:
            return False
        return True

    async def bound(self, name: str) -> str:
        """Waits until a pod is bound to a node, and returns the node's name."""
        pod = await self.until(PODS, name, lambda body: body["spec"].get("nodeName"))
        return str(pod["spec"]["nodeName"])

    async def refused(self, name: str, text: str = "") -> str:
        """Waits until the scheduler reports why a pod is not bound, with `text` in the message; returns the message."""

        def message(pod: JsonObject) -> str:
            conditions = (pod.get("status") or {}).get("conditions") or ()
            scheduled = [condition for condition in conditions if condition["type"] == "PodScheduled"]
            return next((condition["message"] for condition in scheduled if condition.get("message")), "")

        return message(await self.until(PODS, name, lambda pod: message(pod) and text in message(pod)))


@contextlib.asynccontextmanager
async def control_plane(
    *parts: Callable[[KubeClient], Coroutine[Any, Any, None]], **options: Any
) -> AsyncIterator[Plane]:
    """Starts an API server and runs these components, each with a client of the server, until the body ends."""
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

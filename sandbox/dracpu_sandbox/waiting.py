"""Waits for the first of two coroutines, and for objects of the API server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from dracpu_sandbox.client import KubeClient, Mirror
from dracpu_sandbox.resources import Resource


async def either(one: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object]) -> None:
    """Waits until one of them ends, and raises its error; the other is cancelled."""
    tasks = {asyncio.ensure_future(one), asyncio.ensure_future(other)}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()


@contextlib.asynccontextmanager
async def mirrored(
    client: KubeClient, resource: Resource, *, namespace: str = "", fields: str = ""
) -> AsyncGenerator[Mirror]:
    """A mirror that runs while the block is open, and is complete from its start."""
    mirror = Mirror(client, resource, namespace=namespace, fields=fields)
    running = asyncio.create_task(mirror.run(), name=f"mirror of {resource.plural}")
    try:
        await either(mirror.ready.wait(), _outcome(running))  # it may not even be able to list
        yield mirror
    finally:
        running.cancel()
        await asyncio.wait({running})


async def _outcome(task: "asyncio.Task[None]") -> None:
    """Waits for a task without cancelling it when the waiting is cancelled."""
    await asyncio.shield(task)

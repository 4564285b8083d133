"""Helpers that wait for the first of two coroutines, and for objects of the API server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from dracpu_sandbox.client import KubeClient, Mirror
from dracpu_sandbox.resources import Resource


async def either(first: Coroutine[Any, Any, object], second: Coroutine[Any, Any, object]) -> None:
    """Waits until one coroutine ends, and raises its error if it failed; cancels the other."""
    tasks = {asyncio.ensure_future(first), asyncio.ensure_future(second)}
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
    """Runs a mirror while the block is open; it is complete when the block starts."""
    mirror = Mirror(client, resource, namespace=namespace, fields=fields)
    running = asyncio.create_task(mirror.run(), name=f"mirror of {resource.plural}")
    try:
        await either(mirror.ready.wait(), _outcome(running))  # the mirror may fail before it is ready
        yield mirror
    finally:
        running.cancel()
        await asyncio.wait({running})


async def _outcome(task: "asyncio.Task[None]") -> None:
    """Waits for a task without cancelling it when the wait is cancelled."""
    await asyncio.shield(task)

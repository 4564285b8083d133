"""Runs coroutines that never end, for as long as a test needs them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def background(*coroutines: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Runs the coroutines until the block is left; the block fails when a coroutine fails."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
        yield
        for task in tasks:
            task.cancel()

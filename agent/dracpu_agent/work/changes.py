"""The signal that something has changed: the node itself, or what a side that the agent depends on has reported."""

import asyncio
import contextlib
from collections.abc import Callable

from dracpu_agent.node import NodeState


class Changes:
    """Passes every change on to the tasks that follow it. A listener only takes note; its task does the work."""

    def __init__(self, node: NodeState) -> None:
        self._listeners: list[Callable[[], None]] = []
        node.on_change(self.report)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Calls the listener after every change from now on."""
        self._listeners.append(listener)

    def report(self) -> None:
        """Something has changed."""
        for listener in self._listeners:
            listener()


class Follower:
    """Waits for changes; changes that come together wake it once."""

    def __init__(self, changes: Changes) -> None:
        self._changed = asyncio.Event()
        self._changed.set()  # the first look comes without a change
        changes.subscribe(self._changed.set)

    async def next(self, until: float | None = None) -> None:
        """Returns after the next change, or at this time of the loop's clock."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        self._changed.clear()

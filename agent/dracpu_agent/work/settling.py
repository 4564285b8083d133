"""Ends the settling of a node: the former devices have been closed to new claims for settleSeconds."""

import asyncio
from typing import NoReturn

from dracpu_agent.node import NodeState
from dracpu_agent.work.changes import Changes, Follower


class Settling:
    """Keeps the time since the node began to settle."""

    def __init__(self, node: NodeState, changes: Changes) -> None:
        self._node = node
        self._follower = Follower(changes)
        self._began: float | None = None

    async def run(self) -> NoReturn:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._follower.next(until=self.step(loop.time()))

    def step(self, now: float) -> float | None:
        """Ends the settling when its time is over; returns when to look again, None: after the next change."""
        if not self._node.settling or self._node.spec is None:
            self._began = None
            return None
        if self._began is None:
            self._began = now
        due = self._began + self._node.spec.settle_seconds
        if now < due:
            return due
        self._began = None
        self._node.settled()
        return None

"""Taints the devices while claims cannot be prepared, so that no more pods are scheduled to a node that cannot run any.

A container runtime that restarts is back within seconds: only what lasts longer is worth a taint.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

from dracpu_agent.devices.device import Taint
from dracpu_agent.node import NodeState
from dracpu_agent.report.conditions import Standing, unready
from dracpu_agent.work.changes import Changes, Follower
from dracpu_api import names

PATIENCE_SECONDS: Final = 10.0


class Tainting:
    """Keeps the time since claims could be prepared."""

    def __init__(self, node: NodeState, standing: Callable[[], Standing], changes: Changes) -> None:
        self._node = node
        self._standing = standing
        self._follower = Follower(changes)
        self._unready_since: float | None = None

    async def run(self) -> NoReturn:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._follower.next(until=self.step(loop.time()))

    def step(self, now: float) -> float | None:
        """Sets or lifts the taint; returns when to look again, None: after the next change."""
        standing = self._standing()
        if not unready(self._node, standing):
            self._unready_since = None
            self._node.taint(())
            return None
        if self._unready_since is None:
            self._unready_since = now
        due = self._unready_since + PATIENCE_SECONDS
        if now >= due or standing.needs_repair:
            self._node.taint((Taint(names.TAINT_NOT_READY),))
            return None
        self._node.taint(())
        return due

"""Watches whether the cgroup tree lets containers be pinned at all.

Where the cgroup of all pods lacks the cpuset controller, the runtime fails to create every container that is given
CPUs. So the agent then does not connect to the runtime, which leaves all containers as they are, and offers nothing.
"""

import asyncio
from typing import Final, Protocol

import structlog

from dracpu_agent.work.changes import Changes
from dracpu_agent.work.polling import PolledReading

POLL_SECONDS: Final = 30.0

log = structlog.get_logger("cgroups")


class Tree(Protocol):
    """Reads the cgroup tree. The method blocks."""

    def without_cpuset(self) -> str:
        """The cgroup that lacks the cpuset controller; "" if none does."""
        ...


class Delegation(PolledReading[str]):
    """`value` is the cgroup that lacked the cpuset controller when the tree was read last; "" if none did."""

    def __init__(self, tree: Tree, changes: Changes) -> None:
        super().__init__(tree.without_cpuset, "", POLL_SECONDS)
        self._changes = changes
        self._delegated = asyncio.Event()

    async def look(self) -> None:
        """Reads the tree once."""
        await super().look()
        if self.value:
            self._delegated.clear()
        else:
            self._delegated.set()

    def changed(self) -> None:
        """Another cgroup lacks the controller, or none does any more."""
        if self.value:
            log.error("no container can be pinned: a cgroup lacks the cpuset controller", cgroup=self.value)
        self._changes.report()

    async def delegated(self) -> None:
        """Returns when containers can be pinned."""
        await self._delegated.wait()

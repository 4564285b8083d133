"""Watches whether the cgroup tree lets containers be pinned at all.

Where the cgroup of all pods lacks the cpuset controller, the runtime fails to create every container that is given
CPUs. So the agent then does not connect to the runtime, which leaves all containers as they are, and offers nothing.
"""

import asyncio
from typing import Final, NoReturn, Protocol

import structlog

from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.polling import Poll

POLL_SECONDS: Final = 30.0

log = structlog.get_logger("cgroups")


class Tree(Protocol):
    """Reads the cgroup tree. The method blocks."""

    def without_cpuset(self) -> str:
        """The cgroup that lacks the cpuset controller; "" if none does."""
        ...


class Delegation:
    """`lacking` is the cgroup that lacked the cpuset controller when the tree was read last; "" if none did."""

    def __init__(self, tree: Tree, changes: Changes) -> None:
        self._tree = tree
        self._changes = changes
        self._poll = Poll(POLL_SECONDS)
        self._delegated = asyncio.Event()
        self.lacking = ""

    async def look(self) -> None:
        """Reads the tree once."""
        lacking = await in_file_thread(self._tree.without_cpuset)
        if lacking and lacking != self.lacking:
            log.error("no container can be pinned: a cgroup lacks the cpuset controller", cgroup=lacking)
        if lacking:
            self._delegated.clear()
        else:
            self._delegated.set()
        if lacking != self.lacking:
            self.lacking = lacking
            self._changes.report()

    def look_again(self) -> None:
        """Reads the tree at once instead of at the next poll."""
        self._poll.ask()

    async def run(self) -> NoReturn:
        """Reads the tree every 30 s until cancelled."""
        while True:
            await self._poll.due()
            await self.look()

    async def delegated(self) -> None:
        """Returns when containers can be pinned."""
        await self._delegated.wait()

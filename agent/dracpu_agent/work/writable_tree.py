"""Watches whether limits of pods can be written: the cgroup tree has to be mounted for it, with hugetlb in it."""

from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.polling import Poll

POLL_SECONDS: Final = 30.0

log = structlog.get_logger("memory")


class WritableTree:
    """`problem` is why no limit can be written, as it was read last; "" if they can."""

    def __init__(self, read_problem: Callable[[], str], changes: Changes) -> None:
        """`read_problem` blocks."""
        self._read_problem = read_problem
        self._changes = changes
        self._poll = Poll(POLL_SECONDS)
        self.problem = ""

    async def look(self) -> None:
        """Reads the tree once."""
        problem = await in_file_thread(self._read_problem)
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.error("limits of hugepages cannot be written", error=problem)
            self._changes.report()

    def look_again(self) -> None:
        """Reads the tree at once instead of at the next poll."""
        self._poll.ask()

    async def run(self) -> NoReturn:
        """Reads the tree every 30 s until cancelled."""
        while True:
            await self._poll.due()
            await self.look()

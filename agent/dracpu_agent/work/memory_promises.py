"""Reports with an Event when claims were promised more memory than there is."""

from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from dracpu_agent.cluster.events import Events, Subject
from dracpu_agent.work.changes import Changes, Follower

REASON: Final = "PromiseNotKept"

log = structlog.get_logger("memory")


class BrokenPromises:
    """Follows changes of the machine, the settings and the claims."""

    def __init__(self, node_name: str, read: Callable[[], str], changes: Changes, events: Events) -> None:
        """`read` returns what is lacking, and for which claims; "" where there is enough."""
        self._node_name = node_name
        self._read = read
        self._follower = Follower(changes)
        self._events = events

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        reported = ""
        while True:
            await self._follower.next()
            found = self._read()
            if found and found != reported:
                log.warning("claims were promised more memory than there is", problem=found)
                self._events.emit(Subject.cpu_node(self._node_name), "Warning", REASON, "Look", found)
            reported = found

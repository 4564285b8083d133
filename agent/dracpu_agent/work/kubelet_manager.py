"""Watches whether one of the kubelet's own resource managers is static: it gives containers what claims hold."""

from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import structlog

from dracpu_agent.kubelet.pod_resources import PodResourcesError
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.polling import Poll

POLL_SECONDS: Final = 30.0

log = structlog.get_logger("kubelet")


class ManagerWatch:
    """Asks the kubelet every 30 s, and whenever the kubelet has started anew. `static` follows from its last answer."""

    def __init__(self, manager: str, is_static: Callable[[], Awaitable[bool | None]], changes: Changes) -> None:
        """`manager` is its name in the log; `is_static` returns None if that is not known, and raises
        PodResourcesError."""
        self._manager = manager
        self._is_static = is_static
        self._changes = changes
        self._poll = Poll(POLL_SECONDS)
        self._problem = ""
        self.static = False

    def ask_again(self) -> None:
        """Asks at once: the kubelet has registered the driver, so it may have been restarted with another policy."""
        self._poll.ask()

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        while True:
            await self._ask()
            await self._poll.due()

    async def _ask(self) -> None:
        try:
            static = await self._is_static()
        except PodResourcesError as error:
            self._set_problem(str(error))
            return
        self._set_problem("")
        if static is not None and static != self.static:
            self.static = static
            self._changes.report()

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("the policy of a manager of the kubelet is not known", manager=self._manager, error=problem)
        self._problem = problem

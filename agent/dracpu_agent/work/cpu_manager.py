"""Watches whether the kubelet's own CPU manager is static: it would override every pinning."""

from typing import Final, NoReturn, Protocol

import structlog

from dracpu_agent.kubelet.pod_resources import PodResourcesError
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.polling import Poll

POLL_SECONDS: Final = 30.0

log = structlog.get_logger("cpu manager")


class Kubelet(Protocol):
    """Answers for the kubelet's CPU manager."""

    async def assigns_cpus(self) -> bool | None:
        """True if the kubelet assigns CPUs to containers; None if that is not known. Raises PodResourcesError."""
        ...


class CpuManagerWatch:
    """Asks the kubelet every 30 s, and whenever the kubelet has started anew. `static` follows from its last answer."""

    def __init__(self, kubelet: Kubelet, changes: Changes) -> None:
        self._kubelet = kubelet
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
            static = await self._kubelet.assigns_cpus()
        except PodResourcesError as error:
            self._set_problem(str(error))
            return
        self._set_problem("")
        if static is not None and static != self.static:
            self.static = static
            self._changes.report()

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("the policy of the kubelet's CPU manager is not known", error=problem)
        self._problem = problem

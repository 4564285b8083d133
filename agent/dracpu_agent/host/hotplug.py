"""Follows CPUs that come and go: a cheap look every few seconds, and all of sysfs when other CPUs are online.

A CPU on its way on or off is described incompletely for a moment, and its caches come last: so the machine is read
again a little later, and once after every change.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NoReturn, Protocol

import structlog

from dracpu_agent.topology.topology import Topology, TopologyError
from dracpu_api.cpuset import CpuSet

POLL_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
TIMES_AGAIN: Final = 5  # what is incomplete after that is the firmware's fault, and stays so

log = structlog.get_logger("hotplug")


class Sysfs(Protocol):
    """Reads the machine; blocks for as long as that takes, and raises TopologyError."""

    def online(self) -> CpuSet:
        """The CPUs that are online."""
        ...

    def topology(self) -> Topology:
        """Everything."""
        ...


class Hotplug:
    """Reads the machine when other CPUs are online than `known` has, and passes it to `replug`, which returns whether
    anything has changed. `problem` says why the machine cannot be read; `on_problem` is called when it changes."""

    def __init__(
        self,
        sysfs: Sysfs,
        known: Callable[[], Topology],
        replug: Callable[[Topology], bool],
        on_problem: Callable[[], None],
        poll_seconds: float = POLL_SECONDS,
        again_seconds: float = AGAIN_SECONDS,
    ) -> None:
        self._sysfs = sysfs
        self._known = known
        self._replug = replug
        self._on_problem = on_problem
        self._poll_seconds = poll_seconds
        self._again_seconds = again_seconds
        self._asked = asyncio.Event()
        self.problem = ""

    def read_again(self) -> None:
        """Reads everything at once, whether or not other CPUs are online (SIGHUP)."""
        self._asked.set()

    async def run(self) -> NoReturn:
        """Until cancelled."""
        times_again = TIMES_AGAIN if self._known().incomplete else 0
        while True:
            asked = await self._wait(self._again_seconds if times_again else self._poll_seconds)
            try:
                if asked or times_again or self.problem or await self._has_changed():
                    times_again = await self._read(times_again)
                self._set_problem("")
            except TopologyError as error:
                times_again = max(0, times_again - 1)
                self._set_problem(str(error))

    async def _wait(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        asked = self._asked.is_set()
        self._asked.clear()
        return asked

    async def _has_changed(self) -> bool:
        online = await asyncio.to_thread(self._sysfs.online)
        known = self._known()
        return online != known.online | CpuSet(known.incomplete)

    async def _read(self, times_again: int) -> int:
        """Reads the machine; returns how many times it should be read again soon."""
        found = await asyncio.to_thread(self._sysfs.topology)
        former = self._known()
        if self._replug(found):
            log.info("CPUs changed", online=str(found.online), was=str(former.online), offline=str(found.offline))
            report_incomplete(found, former)
            return TIMES_AGAIN if found.incomplete else 1
        return max(0, times_again - 1) if found.incomplete else 0

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.error("the machine cannot be read; the agent works with the last topology", error=problem)
            self._on_problem()


def report_incomplete(found: Topology, former: Topology | None = None) -> None:
    """Logs why CPUs that are online are not offered; each reason once."""
    known = former.incomplete if former else {}
    for cpu, reason in found.incomplete.items():
        if known.get(cpu) != reason:
            log.warning("CPU not offered", cpu=cpu, reason=reason)

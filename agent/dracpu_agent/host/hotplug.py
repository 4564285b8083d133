"""Follows CPUs that come and go: it polls the online CPUs, and the CPUs that pods can use, every few seconds, and reads
the whole machine when they changed.

While a CPU goes online or offline, sysfs describes it incompletely, and its caches appear last. So the machine is read
again after every change, and several times while CPUs are incomplete.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NoReturn, Protocol

import structlog

from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.topology.topology import Topology, TopologyError

POLL_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
TIMES_AGAIN: Final = 5  # a CPU that is incomplete after that stays so: its firmware does not describe it

log = structlog.get_logger("hotplug")


class Machine(Protocol):
    """Reads the machine. The methods block, and raise TopologyError."""

    def has_changed(self, known: Topology) -> bool:
        """True if the machine has to be read again."""
        ...

    def topology(self) -> Topology:
        """The topology of the whole machine."""
        ...


class Hotplug:
    """Reads the machine when it differs from what is `known`, and passes it to `replug`, which returns whether anything
    has changed. `problem` is why the machine cannot be read; a change of it calls `on_problem`."""

    def __init__(
        self,
        machine: Machine,
        known: Callable[[], Topology],
        replug: Callable[[Topology], bool],
        on_problem: Callable[[], None],
        poll_seconds: float = POLL_SECONDS,
        again_seconds: float = AGAIN_SECONDS,
    ) -> None:
        self._machine = machine
        self._known = known
        self._replug = replug
        self._on_problem = on_problem
        self._poll_seconds = poll_seconds
        self._again_seconds = again_seconds
        self._asked = asyncio.Event()
        self.problem = ""

    def read_again(self) -> None:
        """Reads the whole machine at once, even if the online CPUs are the same (SIGHUP)."""
        self._asked.set()

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        times_again = TIMES_AGAIN if self._known().incomplete else 0
        while True:
            asked = await self._wait(self._again_seconds if times_again else self._poll_seconds)
            try:
                if (
                    asked
                    or times_again
                    or self.problem
                    or await in_file_thread(self._machine.has_changed, self._known())
                ):
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

    async def _read(self, times_again: int) -> int:
        """Reads the machine and returns how many more times to read it soon."""
        found = await in_file_thread(self._machine.topology)
        former = self._known()
        if self._replug(found):
            log.info(
                "CPUs changed",
                usable=str(found.online),
                was=str(former.online),
                offline=str(found.offline),
                forbidden=str(found.forbidden),
            )
            report_not_offered(found, former)
            return TIMES_AGAIN if found.incomplete else 1
        return max(0, times_again - 1) if found.incomplete else 0

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.error("the machine cannot be read; the agent works with the last topology", error=problem)
            self._on_problem()


def report_not_offered(found: Topology, former: Topology | None = None) -> None:
    """Logs why online CPUs are not offered, each reason once."""
    if found.forbidden and (former is None or former.forbidden != found.forbidden):
        log.warning("CPUs not offered: pods cannot use them", cpus=str(found.forbidden))
    known = former.incomplete if former else {}
    for cpu, reason in found.incomplete.items():
        if known.get(cpu) != reason:
            log.warning("CPU not offered", cpu=cpu, reason=reason)

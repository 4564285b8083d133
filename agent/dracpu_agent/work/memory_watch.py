"""Follows how much memory the machine has: NUMA nodes and hugepages, which may come and go while the agent runs, and
how much of it the kubelet keeps for the system.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import structlog

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.system import pages_for_pods, reserved_for_system
from dracpu_agent.node import NodeState
from dracpu_agent.topology.topology import TopologyError
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.polling import Poll
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError

POLL_SECONDS: Final = 5.0
# Between two reads of the Node, more or less: only a kubelet with other settings changes what is read of it, and its
# restart is noticed. 15,000 agents cause 8 reads a second, which the API server answers from its memory.
NODE_SECONDS: Final = 1800.0
SPREAD: Final = 0.2
REGISTERED_SECONDS: Final = 60.0  # after a registration, the kubelet may write the Node later than the agent reads it
# after a read that failed, or while the kubelet has not reported its memory: first and longest
AGAIN_SECONDS, LONGEST_SECONDS = 5.0, 60.0

log = structlog.get_logger("memory")


class MemoryWatch:
    """Reads the machine and the Node object. `problem` is why the memory cannot be read; "" while it can."""

    def __init__(
        self,
        node: NodeState,
        driver: MemoryDriver,
        read_machine: Callable[[], Inventory],
        read_node: Callable[[], Awaitable[dict[str, Any]]],
        changes: Changes,
    ) -> None:
        """`read_machine` blocks and raises TopologyError; `read_node` returns the Node object and raises ApiError."""
        self._node = node
        self._driver = driver
        self._read_machine = read_machine
        self._read_node = read_node
        self._changes = changes
        self._machine_poll = Poll(POLL_SECONDS)
        self._node_poll = Poll(NODE_SECONDS)
        self._node_failed = False
        self._has_registered = False  # since the Node was read last
        self.problem = ""

    def kubelet_registered(self) -> None:
        """The kubelet may have been restarted with other settings: reads the Node at once, and again a little later."""
        self._has_registered = True
        self._node_poll.ask()

    def read_again(self) -> None:
        """Reads the machine at once instead of at the next poll."""
        self._machine_poll.ask()

    async def follow_machine(self) -> NoReturn:
        """Runs until cancelled."""
        while True:
            await self._machine_poll.due()
            await self._look_at_machine()

    async def follow_node(self) -> NoReturn:
        """Runs until cancelled."""
        backoff = Backoff(AGAIN_SECONDS, cap=LONGEST_SECONDS)
        while True:
            registered, self._has_registered = self._has_registered, False
            if not await self._look_at_node():
                self._has_registered |= registered
                await self._node_poll.due(backoff.next())
                continue
            backoff.reset()
            usual = NODE_SECONDS * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311 - so that agents spread
            await self._node_poll.due(REGISTERED_SECONDS if registered else usual)

    async def _look_at_machine(self) -> None:
        try:
            found = await in_file_thread(self._read_machine)
        except TopologyError as error:
            self._set_problem(str(error))
            return
        self._set_problem("")
        if self._driver.follow_machine(found):
            room = sorted(self._driver.room().items())
            log.info("the memory of the machine changed", bytes_for_claims={place.device: size for place, size in room})
            self._node.refresh()

    async def _look_at_node(self) -> bool:
        """Reads the Node; returns whether the kubelet has reported there how much memory it keeps."""
        try:
            node = await self._read_node()
        except ApiError as error:
            if not self._node_failed:
                log.warning("the Node cannot be read, retrying", error=str(error))
            self._node_failed = True
            return False
        self._node_failed = False
        pages = pages_for_pods(node)
        if pages != self._driver.allocatable_pages:
            self._driver.allocatable_pages = pages
            self._changes.report()
        system = reserved_for_system(node)
        if system is None:
            return False
        if system != self._driver.system:
            log.info("the kubelet keeps memory for the system", bytes=system)
            self._driver.system = system
            self._node.refresh()
        return True

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.error("the memory cannot be read; the agent works with what it read last", error=problem)
            self._changes.report()

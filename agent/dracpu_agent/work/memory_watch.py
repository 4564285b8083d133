"""Follows what there is of memory: NUMA nodes and hugepages, which may come and go while the agent runs, and how much
of it the kubelet keeps for the system.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import structlog

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.system import reserved_for_system
from dracpu_agent.node import NodeState
from dracpu_agent.topology.topology import TopologyError
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.polling import Poll
from dracpu_api.errors import ApiError

POLL_SECONDS: Final = 5.0
NODE_SECONDS: Final = 300.0  # between two reads of the Node; a restart of the kubelet, which can change it, is noticed
NODE_AGAIN_SECONDS: Final = 10.0  # after a read that failed, or while the kubelet has not reported its memory

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
        self.problem = ""

    def kubelet_registered(self) -> None:
        """The kubelet may have been restarted with other settings: reads the Node at once."""
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
        while True:
            if await self._look_at_node():
                await self._node_poll.due()
            else:
                await asyncio.sleep(NODE_AGAIN_SECONDS)

    async def _look_at_machine(self) -> None:
        try:
            found = await in_file_thread(self._read_machine)
        except TopologyError as error:
            self._set_problem(str(error))
            return
        self._set_problem("")
        former, self._driver.inventory = self._driver.inventory, found
        if found != former:
            log.info(
                "memory changed", offered={str(place): size for place, size in sorted(self._driver.room().items())}
            )
            self._node.refresh()

    async def _look_at_node(self) -> bool:
        """Reads the Node; returns whether it says how much memory the kubelet keeps."""
        try:
            system = reserved_for_system(await self._read_node())
        except ApiError as error:
            if not self._node_failed:
                log.warning("the Node cannot be read, retrying", error=str(error))
            self._node_failed = True
            return False
        self._node_failed = False
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

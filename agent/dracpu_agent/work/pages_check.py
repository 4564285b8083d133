"""Reads the hugepages before a claim of them is granted: how many are free, and how many others may still take."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import NotReadyError
from dracpu_agent.file_threads import in_cgroup_thread, in_file_thread
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.host.hugetlb import UNLIMITED
from dracpu_agent.host.pod_pages import PodUse
from dracpu_agent.memory.inventory import Inventory, with_fewer_free
from dracpu_agent.memory.pages_left import PagesLook, used_by_claims
from dracpu_agent.memory.pods import PodPages
from dracpu_agent.topology.topology import TopologyError

READ_SECONDS: Final = 10.0  # the kubelet gives a Prepare 45 s, and repeats one that failed after 60 to 90 s


class Pods(Protocol):
    """The cgroups of all pods of the node."""

    def read(self) -> Mapping[str, Mapping[int, PodUse]]:
        """UID of a pod -> size of a page -> what the pod may use and uses. Blocks, and raises CgroupError."""


class PagesCheck:
    """Reads what `MemoryDriver.choose` compares with a claim."""

    def __init__(
        self,
        driver: MemoryDriver,
        pods: Pods,
        read_machine: Callable[[], Inventory],
        look_at_use: Callable[[], Awaitable[None]],
    ) -> None:
        """`read_machine` blocks and raises TopologyError; `look_at_use` brings `driver.use` up to date."""
        self._driver = driver
        self._pods = pods
        self._read_machine = read_machine
        self._look_at_use = look_at_use
        self._present: asyncio.Task[None] | None = None  # the look that has begun last
        self._next: asyncio.Task[None] | None = None  # the look that begins when the present one has ended

    async def look(self) -> None:
        """Reads once; raises NotReadyError where the pages cannot be read, or not in time. Claims that arrive during a
        look share the next one."""
        if self._next is None:
            self._next = asyncio.create_task(self._look_after(self._present), name="look at hugepages")
            self._next.add_done_callback(_retrieved)
        reading = self._next
        done, _ = await asyncio.wait((reading,), timeout=READ_SECONDS)
        if not done:
            raise NotReadyError(f"the node's hugepages cannot be read within {READ_SECONDS:g} s: the kubelet retries")
        try:
            reading.result()
        except CgroupError as error:
            raise NotReadyError(f"it is not known how many hugepages other pods may take: {error}") from error

    async def _look_after(self, present: asyncio.Task[None] | None) -> None:
        if present is not None:
            await asyncio.wait((present,))
        self._present, self._next = self._next, None
        await self._look()

    async def _look(self) -> None:
        # Pages that are taken or freed meanwhile are missing in what is free, before or after the other reads. So a
        # claim may be refused for them, and no page counts twice.
        before = await in_file_thread(self._machine)
        await self._look_at_use()
        use = self._driver.use
        pods = await in_cgroup_thread(self._pods.read)
        machine = with_fewer_free(await in_file_thread(self._machine), before)
        self._driver.pages = PagesLook(machine, used_by_claims(use, machine), _others(pods, self._driver.pods))

    def _machine(self) -> Inventory:
        try:
            return self._read_machine()
        except TopologyError:  # the condition MemoryReady reports it: what was read last stays in force
            return self._driver.inventory


def _retrieved(look: asyncio.Task[None]) -> None:
    """Keeps asyncio from reporting the error of a look for which nobody waits any more."""
    if not look.cancelled():
        look.exception()


def _others(pods: Mapping[str, Mapping[int, PodUse]], known: PodPages) -> Mapping[int, int]:
    """The bytes that pods may still take without claims: what their specs request, less what they use. The kubelet
    limits every pod; one without a limit has just been created."""
    left: Counter[int] = Counter()
    for pod_uid, uses in pods.items():
        claimed, own = known.claimed(pod_uid), known.own(pod_uid)
        for page, use in uses.items():
            limit = own.get(page, use.limit)
            used = max(0, use.used - claimed.get(page, 0))
            left[page] += max(0, limit - used) if limit < UNLIMITED else 0
    return left

"""What the agent reads of the containers' cgroups, and what follows from it for claims of hugepages."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from memory_claims_node import MI, OneNode, some

from dracpu_agent.cluster.events import Subject
from dracpu_agent.errors import NotReadyError
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.host.container_usage import ContainerUsage, NumaUsage
from dracpu_agent.host.pod_pages import PodUse
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.memory_use import SHOWN_SECONDS, MemoryUse
from dracpu_agent.work.pages_check import PagesCheck

SMALL = 2 * MI
NEAR = Place(0, Kind(SMALL))
DEVICE = "hugepages-2mi-numa000"
ALL = 32 * SMALL  # the pages of a NUMA node


class Events:
    """Nobody reads them."""

    def emit(self, subject: Subject, kind: str, reason: str, action: str, note: str) -> None: ...


class Machine:
    """A node whose containers use hugepages of NUMA node 0."""

    def __init__(self) -> None:
        self.node = OneNode()
        self.driver = self.node.driver
        self.used: dict[str, int] = {}  # container -> bytes
        self.unreadable: set[str] = set()
        self.counts_nodes = True
        self.taken = 0  # bytes, by programs without claims
        self.free_at = -1  # the read at which the containers free all pages; -1: none
        self.step = 0
        self.reads, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()
        self.changes = Changes(self.node.state)
        self.use = MemoryUse(self.node.state, self.driver, self, self.changes, Events())  # type: ignore[arg-type]
        self.pages = PagesCheck(self.driver, NoPods(self.next_step), self.inventory, self.use.look)

    def read(self, pod_uid: str, container_id: str) -> ContainerUsage | None:
        """Returns what a container uses."""
        if container_id in self.unreadable:
            raise CgroupError("it cannot be read")
        self.next_step()
        pages = {SMALL: self.used.get(container_id, 0)}
        if not self.reads.is_set():
            self.reads.set()
            assert self.may_end.wait(20)
        numa = {0: NumaUsage(0, 0, pages if self.counts_nodes else {})}
        return ContainerUsage(0, 2**63 - 1, 0, 0, 0, 0, pages, pages, numa)

    def inventory(self) -> Inventory:
        """Returns the pages of the machine."""
        self.next_step()
        free = (ALL - self.taken - sum(self.used.values())) // SMALL
        near, *others = self.driver.inventory.nodes
        pages = (replace(near.pages[0], free=free), *near.pages[1:])
        return replace(self.driver.inventory, nodes=(replace(near, pages=pages), *others))

    def next_step(self) -> None:
        """One read follows after the other."""
        if self.step == self.free_at:
            self.used.clear()
        self.step += 1

    def run(self, number: int, size: int) -> str:
        """Runs a container with a claim; returns its id."""
        self.node.create(f"c{number}", *self.node.prepare(number, some(DEVICE, size)))
        return f"c{number}-{self.node.made}"

    async def used_by_claims(self) -> int:
        """Reads the pages; returns how much of them claims use."""
        await self.pages.look()
        assert self.driver.pages is not None
        return self.driver.pages.used[NEAR]


class NoPods:
    """No pod requests hugepages in its spec."""

    def __init__(self, next_step: Callable[[], None]) -> None:
        self.next_step = next_step

    def read(self) -> Mapping[str, Mapping[int, PodUse]]:
        self.next_step()
        return {}


@pytest.mark.parametrize("counts_nodes", [True, False], ids=["by-node", "in-total"])
async def test_pages_that_a_claim_uses_are_not_missing_a_second_time(counts_nodes: bool) -> None:
    machine = Machine()
    machine.counts_nodes = counts_nodes
    machine.used[machine.run(1, ALL // 2)] = ALL // 2
    await machine.pages.look()
    assert machine.use.used() == {NEAR: ALL // 2}
    machine.node.prepare(2, some(DEVICE, ALL // 2))


async def test_a_claim_that_cannot_be_read_uses_what_it_used_last_and_refuses_no_other() -> None:
    machine = Machine()
    container = machine.run(1, ALL // 2)
    machine.used[container] = ALL // 4
    await machine.use.look()
    machine.unreadable.add(container)
    for _ in range(2):
        assert await machine.used_by_claims() == ALL // 4
    machine.node.prepare(2, some(DEVICE, ALL // 2))
    assert machine.use.used() == {}, "nothing is shown that was not read"


async def test_a_claim_that_was_never_read_uses_no_more_than_it_has_or_than_is_in_use() -> None:
    machine = Machine()
    await machine.use.look()
    container = machine.run(1, ALL // 2)
    machine.unreadable.add(container)
    for used in (0, ALL // 4, ALL // 2):
        machine.used[container] = used
        assert await machine.used_by_claims() == used
    machine.taken = ALL // 4
    assert await machine.used_by_claims() == ALL // 2
    machine.node.prepare(2, some(DEVICE, ALL // 4))


@pytest.mark.parametrize("freed_at", [0, 1, 2, 3])
async def test_pages_that_are_freed_during_a_look_do_not_count_twice(freed_at: int) -> None:
    machine = Machine()
    container = machine.run(1, ALL // 2)
    machine.used[container] = ALL // 2
    machine.taken = ALL // 2
    machine.free_at = freed_at
    await machine.pages.look()
    with pytest.raises(NotReadyError, match="and 0 are left"):
        machine.node.prepare(2, some(DEVICE, SMALL))


async def test_an_older_reading_does_not_replace_a_newer_one() -> None:
    machine = Machine()
    container = machine.run(1, ALL // 2)
    machine.used[container] = ALL // 4
    machine.may_end.clear()
    first = asyncio.create_task(machine.use.look())
    await asyncio.to_thread(machine.reads.wait, 20)
    machine.used[container] = ALL // 2
    second = asyncio.create_task(machine.use.look())
    await asyncio.wait((second,), timeout=0.1)  # time in which it could overtake the first
    machine.may_end.set()
    await asyncio.gather(first, second)
    assert machine.use.used() == {NEAR: ALL // 2}


async def test_use_alone_changes_what_is_shown_once_in_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    container = machine.run(1, ALL // 2)
    await machine.use.look()
    shown = []
    for used in range(0, ALL // 2 + SMALL, 2 * SMALL):
        machine.used[container] = used
        await machine.use.look()
        shown.append(machine.driver.use.shown[NEAR])
        assert machine.use.used() == {NEAR: used}, "metrics are exact"
    assert shown == [0, *[2 * SMALL] * (len(shown) - 1)]
    machine.node.prepare(2, some(DEVICE, SMALL))
    await machine.use.look()
    assert machine.driver.use.shown == {NEAR: ALL // 2}, "promises have changed"
    machine.used[container] = 0
    await machine.use.look()
    assert machine.driver.use.shown == {NEAR: ALL // 2}
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now + SHOWN_SECONDS)
    await machine.use.look()
    assert machine.driver.use.shown == {NEAR: 0}

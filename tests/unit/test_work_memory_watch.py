"""The agent follows the memory of the machine and what the kubelet keeps of it, and asks the API server rarely."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import NODE, machine, spec
from virtual_time import run_in_virtual_time

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.host.memory import persistent_and_surplus
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages, SteadySurplus
from dracpu_agent.memory.room import OfferSettings, room
from dracpu_agent.node import NodeState
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.memory_watch import MemoryWatch
from dracpu_api.cpuset import CpuSet
from dracpu_api.errors import UnavailableError
from dracpu_api.settings import MemorySettings

MI, GI = 1024**2, 1024**3
LOOKS = 4
REPORTED = {"status": {"capacity": {"memory": "4Gi"}, "allocatable": {"memory": "3Gi"}}}


def inventory(surplus: int = 0, count: int = 16) -> Inventory:
    pages = (Pages(2 * MI, count, count, surplus), Pages(GI, 0, 0))
    return Inventory((NumaMemory(0, CpuSet((0,)), 4 * GI, 4, pages),))


# ---- the Node


class ReadNode:
    """Answers reads of the Node, and notes when they came."""

    def __init__(self, *failures: Exception | dict[str, Any]) -> None:
        self.times: list[float] = []
        self._failures = list(failures)

    async def __call__(self) -> dict[str, Any]:
        self.times.append(asyncio.get_running_loop().time())
        answer = self._failures.pop(0) if self._failures else REPORTED
        if isinstance(answer, Exception):
            raise answer
        return answer


def watch_of(read_node: ReadNode) -> MemoryWatch:
    driver = MemoryDriver(NODE, inventory(), machine())
    state = NodeState(NODE, machine(), [driver])
    state.configure(spec(memory=MemorySettings(enabled=True)))
    return MemoryWatch(state, driver, inventory, read_node, Changes(state))


@contextlib.asynccontextmanager
async def following(watch: MemoryWatch) -> Any:
    task = asyncio.create_task(watch.follow_node())
    try:
        yield
    finally:
        task.cancel()


def test_the_node_is_read_about_every_half_hour_and_not_at_the_same_moments_by_all_agents() -> None:
    async def two_days() -> None:
        first, second = ReadNode(), ReadNode()
        async with following(watch_of(first)), following(watch_of(second)):
            await asyncio.sleep(48 * 3600)
        for read in (first, second):
            assert read.times[0] == 0
            assert 80 <= len(read.times) <= 120
        assert first.times[1:] != second.times[1:]

    run_in_virtual_time(two_days())


def test_a_registration_of_the_kubelet_has_the_node_read_at_once_and_again_when_the_kubelet_has_written_it() -> None:
    async def registration() -> None:
        read = ReadNode()
        watch = watch_of(read)
        async with following(watch):
            await asyncio.sleep(500)
            watch.kubelet_registered()
            await asyncio.sleep(500)
        assert read.times == [0, 500, 560]

    run_in_virtual_time(registration())


def test_a_read_that_fails_is_repeated_later_each_time_and_at_once_when_the_kubelet_registers() -> None:
    async def failures() -> None:
        unreported: dict[str, Any] = {"status": {}}
        read = ReadNode(*[UnavailableError("away", reason="Timeout")] * 10, unreported)
        watch = watch_of(read)
        async with following(watch):
            await asyncio.sleep(600)
            waits = [later - earlier for earlier, later in zip(read.times, read.times[1:], strict=False)]
            assert 2.5 <= waits[0] <= 5
            assert all(wait <= 60 for wait in waits[:11])
            assert len(read.times) == 12

        again = ReadNode(*[UnavailableError("away", reason="Timeout")] * 2)
        watch = watch_of(again)
        async with following(watch):
            await asyncio.sleep(0.001)
            watch.kubelet_registered()
            await asyncio.sleep(0.001)
            assert len(again.times) == 2

    run_in_virtual_time(failures())


# ---- surplus pages


def offered(found: Inventory) -> int:
    """The ordinary memory that is offered."""
    return next(size for place, size in room(found, OfferSettings()).items() if not place.kind.is_huge)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_ordinary_memory_shrinks_with_surplus_pages_at_once_and_grows_when_they_stay_away(looks: list[int]) -> None:
    first, *later = looks
    steady = SteadySurplus(LOOKS, inventory(first))
    for number, surplus in enumerate(later, start=1):
        shown = offered(steady.follow(inventory(surplus)))
        assert shown == offered(inventory(max(looks[max(0, number - LOOKS + 1) : number + 1])))
        assert shown <= offered(inventory(surplus))


def test_surplus_pages_that_come_and_go_change_nothing_that_is_offered() -> None:
    steady = SteadySurplus(LOOKS, inventory())
    shown = {offered(steady.follow(inventory(surplus))) for surplus in [3, 0, 1, 0] * 10}
    assert shown == {offered(inventory(3))}


async def test_the_slices_are_not_written_again_for_each_surplus_page() -> None:
    found, reads = inventory(), asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    def read_machine() -> Inventory:
        present = found
        loop.call_soon_threadsafe(reads.release)
        return present

    driver = MemoryDriver(NODE, found, machine())
    state = NodeState(NODE, machine(), [driver])
    state.configure(spec(memory=MemorySettings(enabled=True)))
    watch = MemoryWatch(state, driver, read_machine, ReadNode(), Changes(state))
    revision = state.revision
    task = asyncio.create_task(watch.follow_machine())
    async with asyncio.timeout(30):
        for surplus in (3, 0, 1, 0, 2, 2):  # the last look is over when the next one has begun
            found = inventory(surplus)
            watch.read_again()
            await reads.acquire()
    task.cancel()
    assert state.revision == revision + 1
    assert offered(driver.inventory) == offered(inventory(3))


def test_surplus_pages_do_not_change_what_is_offered_whatever_reads_the_machine() -> None:
    driver = MemoryDriver(NODE, inventory(), machine())
    assert driver.follow_machine(inventory(3))
    assert not any(driver.follow_machine(inventory(surplus)) for surplus in (0, 2, 1))
    assert driver.follow_machine(inventory(count=20))


def test_persistent_pages_are_followed_at_once() -> None:
    steady = SteadySurplus(LOOKS, inventory(count=16))
    for count in (20, 4, 16):
        assert steady.follow(inventory(count=count)) == inventory(count=count)


@pytest.mark.parametrize(
    ("totals", "surplus", "expected"),
    [
        ([16], [0, 0], (16, 0)),
        ([17, 17], [0, 1, 1], (16, 1)),  # a page came between the reads
        ([16, 16], [1, 0, 0], (16, 0)),  # one went
        ([17, 18, 16], [0, 1, 2, 0], (14, 0)),  # they come and go all the time: never too many
    ],
)
def test_counts_that_change_while_they_are_read_never_give_too_many_pages(
    totals: Sequence[int], surplus: Sequence[int], expected: tuple[int, int]
) -> None:
    readings = {"nr_hugepages": iter(totals), "surplus_hugepages": iter(surplus)}
    assert persistent_and_surplus(lambda file: next(readings[file])) == expected

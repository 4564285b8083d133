"""The conditions and the Event that are about the memory of a node, and its capacity in the metrics."""

import asyncio
from typing import Any

from background import background
from memory_beside_cpus import prepared, some
from nodes import NODE, machine, spec

from dracpu_agent.cluster.events import Events, Subject
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.system import pages_for_pods
from dracpu_agent.node import NodeState
from dracpu_agent.report.memory import broken_promises, memory_condition, shared_pages_condition
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.memory_promises import BrokenPromises
from dracpu_agent.work.memory_watch import MemoryWatch
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings, ReservedMemory

MI, GI = 1024**2, 1024**3
PAGES = (Pages(2 * MI, 32, 32),)
NODE_OBJECT = {
    "status": {
        "capacity": {"memory": "4Gi", "hugepages-2Mi": "64Mi", "hugepages-1Gi": "0"},
        "allocatable": {"memory": "3Gi", "hugepages-2Mi": "64Mi", "hugepages-1Gi": "0"},
    }
}


def driver(reserved: str = "0", *, enabled: bool = True) -> MemoryDriver:
    made = MemoryDriver(NODE, Inventory((NumaMemory(0, CpuSet((0,)), 4 * GI, None, PAGES),)), machine())
    kept = (ReservedMemory(0, (("hugepages_2Mi", int(reserved) * MI),)),)
    made.configure(spec(memory=MemorySettings(enabled=enabled, reserved=kept)))
    made.allocatable_pages = pages_for_pods(NODE_OBJECT)
    return made


def test_the_hugepages_of_a_node_are_those_that_the_kubelet_offers() -> None:
    assert pages_for_pods(NODE_OBJECT) == {2 * MI: 64 * MI}
    assert pages_for_pods({}) == {}


def test_pages_that_can_be_given_away_twice_are_named() -> None:
    found = shared_pages_condition(driver("16"))
    assert found is not None
    assert (found.type, found.true, found.reason) == ("PagesSharedWithKubelet", True, "PagesAllocatable")
    assert "48Mi of hugepages_2Mi" in found.message
    assert "memory.reserved" in found.message


def test_there_is_no_condition_where_all_pages_are_reserved_or_none_are_offered() -> None:
    assert shared_pages_condition(driver("64")) is None
    assert shared_pages_condition(driver(enabled=False)) is None
    kubelet_without_pages = driver()
    kubelet_without_pages.allocatable_pages = {}
    assert shared_pages_condition(kubelet_without_pages) is None


def promised(made: MemoryDriver, size: int) -> NodeState:
    """A node of which a claim has this much of the hugepages."""
    state = NodeState(NODE, machine(), [made])
    state.configure(spec(memory=MemorySettings(enabled=True)))
    prepared(state, 1, some("hugepages-2mi-numa000", str(size)))
    return state


def test_claims_that_were_promised_more_than_there_is_are_named() -> None:
    made = MemoryDriver(NODE, Inventory((NumaMemory(0, CpuSet((0,)), 4 * GI, None, PAGES),)), machine())
    promised(made, 48 * MI)
    assert broken_promises(made) == ""
    made.inventory = Inventory((NumaMemory(0, CpuSet((0,)), 4 * GI, None, (Pages(2 * MI, 20, 0),)),))
    found = memory_condition(made, unreadable="", not_writable="")
    assert found is not None
    assert (found.type, found.true, found.reason) == ("MemoryReady", False, "PromiseNotKept")
    assert "8Mi of hugepages_2Mi on NUMA node 0 are lacking" in found.message
    assert found.message.endswith("claims on it are default/claim-1")


async def test_a_broken_promise_is_one_event_about_the_node() -> None:
    texts = ["", "4Mi are lacking", "4Mi are lacking", "", "4Mi are lacking"]
    emitted: list[tuple[Any, ...]] = []
    all_read = asyncio.Event()

    class Recorded(Events):
        def emit(self, *event: Any) -> None:
            emitted.append(event)

    def read() -> str:
        if not texts:
            all_read.set()
            return "4Mi are lacking"
        asyncio.get_running_loop().call_soon(changes.report)
        return texts.pop(0)

    changes = Changes(NodeState(NODE, machine(), []))
    events = Recorded(None, NODE, "agent")  # type: ignore[arg-type]  # it sends nothing
    async with background(BrokenPromises(NODE, read, changes, events).run()):
        async with asyncio.timeout(20):
            await all_read.wait()
    assert emitted == [(Subject.cpu_node(NODE), "Warning", "PromiseNotKept", "Look", "4Mi are lacking")] * 2


def test_memory_that_is_not_offered_is_no_capacity() -> None:
    made = driver()
    made.system = 0
    capacity, free = made.available()
    assert capacity[Place(0, Kind(2 * MI))] == free[Place(0, Kind(2 * MI))] == 64 * MI
    made.pages_can_be_limited = False
    assert Place(0, Kind(2 * MI)) not in made.available()[0]
    assert driver(enabled=False).available() == ({}, {})


async def test_the_pages_that_the_kubelet_offers_are_read_from_the_node() -> None:
    made = driver()
    made.allocatable_pages = {}
    state = NodeState(NODE, machine(), [made])
    changes, changed = Changes(state), asyncio.Event()
    changes.subscribe(changed.set)

    async def read_node() -> dict[str, Any]:
        return NODE_OBJECT

    watch = MemoryWatch(state, made, lambda: made.inventory, read_node, changes)
    following = asyncio.create_task(watch.follow_node())
    async with asyncio.timeout(10):
        await changed.wait()
    following.cancel()
    assert made.shared_pages() == {Kind(2 * MI): 64 * MI}
    assert Place(0, Kind(2 * MI)) in made.room()

"""The conditions that are about memory, besides MemoryReady."""

import asyncio
from typing import Any

from nodes import NODE, machine, spec

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.system import pages_for_pods
from dracpu_agent.node import NodeState
from dracpu_agent.report.memory import shared_pages_condition
from dracpu_agent.work.changes import Changes
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

"""A pod with claims of pages is not resized when its cgroup cannot be read in time."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from nodes import NODE, machine

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import PlacementError
from dracpu_agent.file_threads import CGROUP_THREADS, THREADS, in_cgroup_thread, in_file_thread
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.work.pod_resizes import PodResizes

POD = "pod-1"
MI = 1024**2
PODS = [f"pod-{number}" for number in range(1, 2 * (THREADS + CGROUP_THREADS))]
CHECKS = 2 * (THREADS + CGROUP_THREADS)
LONG = 30.0  # seconds after which a test fails


class Hanging:
    """The cgroups of pods, each of which hangs until `answer`."""

    def __init__(self) -> None:
        self.readings: Counter[str] = Counter()
        self.untouched: Mapping[int, int] = {}
        self.answer = threading.Event()

    def read(self, pod_uid: str) -> Mapping[int, int]:
        self.readings[pod_uid] += 1
        found = self.untouched  # what a reading finds is as old as its begin
        assert self.answer.wait(LONG)
        return found


@pytest.fixture
async def hanging() -> AsyncIterator[Hanging]:
    made = Hanging()
    yield made
    made.answer.set()


@pytest.fixture
def driver() -> MemoryDriver:
    made = MemoryDriver(NODE, Inventory(()), machine())
    made.pods.set_claims({pod: {2 * MI: 16 * MI} for pod in PODS})
    return made


async def test_a_read_that_hangs_refuses_the_resize_and_is_not_waited_for(driver: MemoryDriver) -> None:
    answered = threading.Event()

    def hang(_: str) -> Mapping[int, int]:
        answered.wait()
        raise CgroupError("too late")

    try:
        with pytest.raises(PlacementError, match="could not be read in time"):
            await PodResizes(driver, hang).check(POD)
    finally:
        answered.set()


async def test_the_cgroup_of_a_pod_without_claims_of_pages_is_not_read(driver: MemoryDriver) -> None:
    def read(_: str) -> Any:
        raise AssertionError("read")

    await PodResizes(driver, read).check("without-claims")


async def test_resizes_of_pods_that_hang_leave_the_threads_in_which_checkpoints_are_written(
    driver: MemoryDriver, hanging: Hanging
) -> None:
    resizes = PodResizes(driver, hanging.read)
    refused = await asyncio.gather(*(resizes.check(pod) for pod in PODS), return_exceptions=True)
    assert all(isinstance(error, PlacementError) for error in refused)
    async with asyncio.timeout(LONG / 2):
        assert await in_file_thread(lambda: "written") == "written"
    assert not hanging.answer.is_set()


async def test_a_pod_that_hangs_occupies_one_thread_however_often_it_is_resized(
    driver: MemoryDriver, hanging: Hanging
) -> None:
    resizes = PodResizes(driver, hanging.read)
    for _ in range(2):  # the second time, all callers of the reading have left it behind
        refused = await asyncio.gather(*(resizes.check(POD) for _ in range(CHECKS)), return_exceptions=True)
        assert all("could not be read in time" in str(error) for error in refused)
    async with asyncio.timeout(LONG / 2):
        assert await in_cgroup_thread(lambda: "read") == "read"
    assert hanging.readings == {POD: 1}


async def test_a_resize_that_waits_for_a_reading_under_way_is_judged_by_what_is_read_after_it(
    driver: MemoryDriver, hanging: Hanging
) -> None:
    resizes = PodResizes(driver, hanging.read)
    with pytest.raises(PlacementError, match="could not be read in time"):
        await resizes.check(POD)
    hanging.untouched = {2 * MI: 4 * MI}
    repeated = asyncio.create_task(resizes.check(POD))
    await asyncio.sleep(0)  # it waits now
    hanging.answer.set()
    with pytest.raises(PlacementError, match="have reserved 4Mi"):
        await repeated

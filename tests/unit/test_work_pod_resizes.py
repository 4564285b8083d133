"""A pod with claims of pages is not resized when its cgroup cannot be read in time."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from nodes import NODE, machine

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import PlacementError
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.work.pod_resizes import PodResizes

POD = "pod-1"
MI = 1024**2


@pytest.fixture
def driver() -> MemoryDriver:
    made = MemoryDriver(NODE, Inventory(()), machine())
    made.pods.set_claims({POD: {2 * MI: 16 * MI}})
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

    await PodResizes(driver, read).check("pod-2")

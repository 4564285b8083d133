"""Claims of hugepages that are prepared at the same time share a look at the node's pages."""

import asyncio
import threading
from collections.abc import Mapping

import pytest
from memory_beside_cpus import inventory, memory_driver

from dracpu_agent.errors import NotReadyError
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.host.pod_pages import PodUse
from dracpu_agent.work.pages_check import PagesCheck

AT_ONCE = 20


class Pods:
    """The cgroups of all pods. A reader waits until it may go on."""

    def __init__(self) -> None:
        self.looks = 0
        self.go_on = threading.Event()
        self.reads = threading.Event()
        self.error: CgroupError | None = None

    def read(self) -> Mapping[str, Mapping[int, PodUse]]:
        self.looks += 1
        self.reads.set()
        assert self.go_on.wait(20)
        if self.error is not None:
            raise self.error
        return {}


async def nothing() -> None:
    """The use of memory is up to date."""


def check(pods: Pods) -> PagesCheck:
    return PagesCheck(memory_driver(), pods, inventory, nothing)


async def test_claims_that_arrive_together_share_a_look() -> None:
    pods = Pods()
    pods.go_on.set()
    pages = check(pods)
    await asyncio.gather(*(pages.look() for _ in range(AT_ONCE)))
    assert pods.looks == 1
    await pages.look()
    assert pods.looks == 2


async def test_claims_that_arrive_during_a_look_share_the_next_one() -> None:
    pods = Pods()
    pages = check(pods)
    first = asyncio.create_task(pages.look())
    await asyncio.to_thread(pods.reads.wait, 20)
    others = [asyncio.create_task(pages.look()) for _ in range(AT_ONCE)]
    await asyncio.sleep(0)  # they wait now
    pods.go_on.set()
    await asyncio.gather(first, *others)
    assert pods.looks == 2, "what was read before they arrived may be too old"


async def test_pages_that_cannot_be_read_refuse_every_claim_that_waits() -> None:
    pods = Pods()
    pods.error = CgroupError("no such cgroup")
    pods.go_on.set()
    pages = check(pods)
    looks = await asyncio.gather(*(pages.look() for _ in range(2)), return_exceptions=True)
    assert [type(error) for error in looks] == [NotReadyError, NotReadyError]
    pods.error = None
    await pages.look()


async def test_a_look_that_hangs_refuses_claims_in_time_and_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dracpu_agent.work.pages_check.READ_SECONDS", 0.05)
    pods = Pods()
    pages = check(pods)
    for _ in range(3):
        with pytest.raises(NotReadyError, match="cannot be read within"):
            await pages.look()
    assert pods.looks == 1
    monkeypatch.setattr("dracpu_agent.work.pages_check.READ_SECONDS", 20)
    pods.go_on.set()
    await pages.look()

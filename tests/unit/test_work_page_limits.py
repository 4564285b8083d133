"""Limits of pods' hugepages are kept up to date whatever the kernel refuses; no pod waits for another one's cgroup."""

import asyncio
import contextlib
import shutil
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cgroup_trees import write_cgroup, write_limits, write_tree
from nodes import NODE, claim_object, machine, ref, share, spec, uid
from structlog.testing import capture_logs

from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.host.cgroup_errors import CgroupTimeoutError, ControllerMissingError
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.inotify import FileWatch, WatchLimitError
from dracpu_agent.host.pod_limits import PodLimits
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.node import NodeState
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.page_limits import PACE, Pace, PageLimits
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings

DRIVER = "dra.memory"
MI = 1024**2
NEVER = 3600.0
LONG = 30.0  # seconds after which a test fails


class CountedLimits(PodLimits):
    """Counts the looks at each pod; a pod in `hanging` blocks the thread that reads its cgroup."""

    def __init__(self, mount: Path) -> None:
        super().__init__(mount, CgroupTree(mount))
        self.looks: Counter[str] = Counter()
        self.hanging: dict[str, threading.Event] = {}

    def read(self, pod_uid: str) -> Any:
        self.looks[pod_uid] += 1
        if pod_uid in self.hanging:
            self.hanging[pod_uid].wait(LONG)
        return super().read(pod_uid)


class Node:
    """A node with the cgroups of its pods, and the part of the agent that writes their limits."""

    def __init__(self, root: Path, open_watch: Callable[[], FileWatch], pace: Pace) -> None:
        found = NumaMemory(0, CpuSet((0,)), 4096 * MI, 4, (Pages(2 * MI, 512, 512),))
        self.driver = MemoryDriver(NODE, Inventory((found,)), machine())
        self.driver.system = 0
        self.state = NodeState(NODE, machine(), [self.driver])
        self.state.configure(spec(memory=MemorySettings(enabled=True)))
        self.state.containers.synchronize([])
        self.tree = root / "cgroups"
        write_tree(self.tree, "kubepods")
        self.cgroups = CountedLimits(self.tree)
        changes = Changes(self.state)
        self.state_file = StateFile(
            root / "state", self.state.checkpoint, lambda _seconds, _problem: None, kinds=self.state.claim_kinds()
        )
        self.repairs = 0
        self.limits = PageLimits(
            self.driver, self.cgroups, self.state_file, changes, self.count, open_watch=open_watch, pace=pace
        )

    def count(self) -> None:
        self.repairs += 1

    def claim(self, number: int, pod: str, pages: int = 1) -> None:
        """Grants a claim of pages of 2 MiB, as Prepare does."""
        result = share("hugepages-2mi-numa000", 1) | {
            "driver": DRIVER,
            "consumedCapacity": {"size": str(pages * 2 * MI)},
        }
        holding = self.state.holdings[DRIVER]
        holding.grant(holding.driver.read(ref(number), claim_object(number, [result], pods=[pod])))

    def release(self, number: int) -> None:
        self.state.holdings[DRIVER].release(uid(number))

    def cgroup(self, pod: str, limit: str = "0") -> Path:
        """Makes the cgroup of a pod, as the kubelet does."""
        return write_limits(write_cgroup(self.tree / f"kubepods/pod{pod}"), {"2MB": limit})

    def pages(self, pod: str) -> float | None:
        """How many pages the cgroup of the pod allows."""
        texts = {
            (self.tree / f"kubepods/pod{pod}" / name).read_text().strip()
            for name in ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max")
        }
        return int(texts.pop()) / (2 * MI) if len(texts) == 1 and texts != {"max"} else None


@contextlib.asynccontextmanager
async def running(
    root: Path, open_watch: Callable[[], FileWatch] = FileWatch, pace: Pace = PACE
) -> AsyncIterator[Node]:
    """Starts the tasks that look at pods."""
    node = Node(root, open_watch, pace)
    (root / "state").mkdir()
    tasks = [asyncio.create_task(node.state_file.run()), asyncio.create_task(node.limits.run())]
    try:
        yield node
    finally:
        for released in node.cgroups.hanging.values():
            released.set()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results), results


async def until(condition: Callable[[], bool]) -> None:
    """Waits until a thread has written a file, of which nothing notifies."""
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110 - a thread does it
            await asyncio.sleep(0.002)


def no_watch() -> FileWatch:
    raise WatchLimitError("no file can be watched: raise fs.inotify.max_user_instances")


# ---- without watches


async def test_without_watches_limits_are_still_repaired_and_one_warning_names_the_sysctl(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with running(tmp_path, no_watch, Pace(unwatched=0.005, watch_again=0.005)) as node:
            cgroup = node.cgroup("a")
            node.claim(1, "a")
            for _ in range(3):
                await until(lambda: node.pages("a") == 1)
                write_limits(cgroup, {"2MB": "0"})
            await until(lambda: node.pages("a") == 1)
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert "repaired up to 0.005 s late" in warning["event"]
    assert "fs.inotify.max_user_instances" in warning["error"]


async def test_files_are_watched_as_soon_as_the_kernel_allows_it(tmp_path: Path) -> None:
    attempts = 0

    def third_time() -> FileWatch:
        nonlocal attempts
        attempts += 1
        return FileWatch() if attempts == 3 else no_watch()

    async with running(tmp_path, third_time, Pace(all=NEVER, unwatched=NEVER, watch_again=0.005)) as node:
        cgroup = node.cgroup("a")
        node.claim(1, "a")
        await until(lambda: attempts == 3)
        await until(lambda: node.pages("a") == 1)
        for repairs in (1, 2):
            write_limits(cgroup, {"2MB": "0"})
            await until(lambda: node.pages("a") == 1)
            await until(lambda: node.repairs >= repairs)  # noqa: B023 - it is awaited here


# ---- cgroups that hang


async def test_a_cgroup_that_hangs_is_reported_in_time_and_delays_no_other_pod(tmp_path: Path) -> None:
    async with running(tmp_path, pace=Pace(all=NEVER, again=NEVER)) as node:
        for pod in ("hung", "other"):
            node.cgroup(pod)
        node.cgroups.hanging["hung"] = threading.Event()
        node.claim(1, "hung")
        node.claim(2, "other")
        calls = [node.limits.ensure("hung", 0.01) for _ in range(30)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} == {CgroupTimeoutError}
        assert "cgroup of pod hung has not ended within 0.01 s" in str(results[0])
        await node.limits.ensure("other", LONG)
        assert node.pages("other") == 1
        await until(lambda: node.cgroups.looks["hung"] > 0)
        assert node.cgroups.looks["hung"] == 1, "one thread waits, however many tasks ask"
        node.cgroups.hanging.pop("hung").set()
        await node.limits.ensure("hung", LONG)
        assert node.pages("hung") == 1


async def test_a_hook_that_is_cancelled_does_not_wait_for_a_cgroup_that_hangs(tmp_path: Path) -> None:
    async with running(tmp_path, pace=Pace(all=NEVER, again=NEVER)) as node:
        node.cgroup("hung")
        node.cgroups.hanging["hung"] = threading.Event()
        node.claim(1, "hung")
        hook = asyncio.create_task(node.limits.ensure("hung", LONG))
        await until(lambda: node.cgroups.looks["hung"] == 1)
        hook.cancel()
        async with asyncio.timeout(LONG / 3):
            with pytest.raises(asyncio.CancelledError):
                await hook


async def test_who_asks_while_a_look_is_under_way_gets_the_limits_of_claims_that_came_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path, pace=Pace(all=NEVER, again=NEVER)) as node:
        node.cgroup("a")
        node.claim(1, "a")
        blocked = node.cgroups.hanging["a"] = threading.Event()
        first = asyncio.create_task(node.limits.ensure("a", LONG))
        await until(lambda: node.cgroups.looks["a"] == 1)
        node.claim(2, "a", pages=4)
        second = asyncio.create_task(node.limits.ensure("a", LONG))
        await asyncio.sleep(0)
        blocked.set()
        await asyncio.gather(first, second)
        assert node.pages("a") == 5


# ---- which pods are looked at


async def test_a_change_of_one_pods_claims_reads_no_cgroup_of_other_pods(tmp_path: Path) -> None:
    async with running(tmp_path, pace=Pace(all=NEVER)) as node:
        for number, pod in enumerate(("a", "b", "c")):
            node.cgroup(pod)
            node.claim(number, pod)
        await until(lambda: all(node.pages(pod) == 1 for pod in ("a", "b", "c")))
        await asyncio.gather(*(node.limits.ensure(pod, LONG) for pod in ("a", "b", "c")))  # their own events are over
        before = node.cgroups.looks.copy()
        for number in range(3, 13):
            node.claim(number, "c")
            await until(lambda: node.pages("c") == number - 1)  # noqa: B023 - it is awaited here
        looks = node.cgroups.looks - before
        assert looks["c"] >= 10
        assert looks["a"] + looks["b"] <= 4, "at most the events of what was written for them"


async def test_a_pod_without_a_cgroup_is_not_looked_at_again_and_again(tmp_path: Path) -> None:
    async with running(tmp_path, pace=Pace(all=NEVER, again=0.002)) as node:
        gone = node.cgroup("gone")
        node.claim(1, "gone")
        await until(lambda: node.pages("gone") == 1)
        shutil.rmtree(gone)
        node.claim(2, "gone")
        node.cgroup("unreadable", "garbage")
        node.claim(3, "unreadable")
        await until(lambda: node.cgroups.looks["unreadable"] > 20)
        assert node.cgroups.looks["gone"] < 10


async def test_a_pod_whose_claims_have_ended_is_not_looked_at_after_a_failure(tmp_path: Path) -> None:
    async with running(tmp_path, pace=Pace(all=NEVER, again=0.002)) as node:
        for number, pod in enumerate(("ended", "unreadable")):
            node.cgroup(pod, "garbage")
            node.claim(number, pod)
        await until(lambda: min(node.cgroups.looks[pod] for pod in ("ended", "unreadable")) > 2)
        node.release(0)
        before = node.cgroups.looks.copy()
        await until(lambda: (node.cgroups.looks - before)["unreadable"] > 20)
        assert (node.cgroups.looks - before)["ended"] <= 2


# ---- what the kubelet has written so far


async def test_a_pod_gets_its_pages_when_the_kubelet_writes_its_limits_after_the_agent_looked(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        cgroup = node.cgroup("a", "max")  # as the kernel makes it
        node.claim(1, "a")
        await node.limits.ensure("a", LONG)
        assert node.pages("a") is None, "nothing is limited before the kubelet has limited it"
        write_limits(cgroup, {"2MB": str(4 * 2 * MI)})
        await until(lambda: node.pages("a") == 5)


async def test_a_size_that_the_cgroup_could_not_limit_is_limited_when_it_can(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        cgroup = write_cgroup(node.tree / "kubepods/poda", controllers="cpu memory")
        node.claim(1, "a")
        with pytest.raises(ControllerMissingError, match="does not pass the hugetlb controller on"):
            await node.limits.ensure("a", LONG)
        write_cgroup(cgroup)
        write_limits(cgroup, {"2MB": str(2 * 2 * MI)})
        await node.limits.ensure("a", LONG)
        assert node.pages("a") == 3


async def test_a_pod_without_claims_does_not_need_sizes_that_its_cgroup_has_no_more(tmp_path: Path) -> None:
    async with running(tmp_path, pace=Pace(all=NEVER)) as node:
        cgroup = node.cgroup("a")
        node.claim(1, "a")
        await until(lambda: node.pages("a") == 1)
        node.release(1)
        await until(lambda: node.pages("a") == 0)
        for file in cgroup.glob("hugetlb.*"):
            file.unlink()
        await node.limits.ensure("a", LONG)

"""Corrections of running containers, one after the other, while the kernel takes its time or refuses."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest
from memory_claims_node import GI, MI, POD, OneNode, some

from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.host.container_usage import ContainerUsage, NumaUsage
from dracpu_agent.placement.container import Container
from dracpu_agent.work import late_corrections
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.late_corrections import LateCorrections

MAX = "memory.max"


class Cgroups:
    """Containers that use nothing; the kernel may take its time with a write, or refuse it."""

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}
        self.begun: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.refused: set[str] = set()

    def read(self, pod_uid: str, container_id: str) -> ContainerUsage | None:
        limit = self.limits.get(container_id, 2**63 - 1)
        return ContainerUsage(0, limit, 0, 0, 0, 0, {}, {}, {}, nodes="0")

    def write(self, pod_uid: str, container_id: str, name: str, text: str) -> bool:
        self.begun.append(container_id)
        assert self.may_end.wait(20)
        if container_id in self.refused:
            raise CgroupError("the kernel has refused it")
        self.limits[container_id] = int(text)
        return True


PAGES = {2 * MI: 16 * MI}
USAGE = ContainerUsage(64 * MI, 512 * MI, 64 * MI, 0, 0, 0, PAGES, PAGES, {0: NumaUsage(64 * MI, 0, PAGES)})


class Using(Cgroups):
    """Containers that are limited, and not bound yet."""

    def __init__(self, usage: ContainerUsage) -> None:
        super().__init__()
        self.usage = usage
        self.bound = False
        self.reads = 0

    def read(self, pod_uid: str, container_id: str) -> ContainerUsage | None:
        self.reads += 1
        return replace(self.usage, nodes="0" if self.bound else "")

    def write(self, pod_uid: str, container_id: str, name: str, text: str) -> bool:
        assert name == "cpuset.mems"
        self.bound = True
        return True


def two_late() -> OneNode:
    """A node on which two containers run without the limits of their claims."""
    node = OneNode()
    devices = node.prepare(1, some("memory-numa000", 512 * MI, "a"), some("memory-numa000", 512 * MI, "b"))
    containers = [
        Container(name, name, "default", POD, POD, (device,)) for name, device in zip(("a", "b"), devices, strict=True)
    ]
    node.state.containers.synchronize(containers)
    return node


def spare() -> Mapping[int, int]:
    return {0: GI, 1: GI}


@contextlib.asynccontextmanager
async def correcting(node: OneNode, cgroups: Cgroups) -> AsyncIterator[list[str]]:
    """Corrects, and collects the files that are counted."""
    counted: list[str] = []
    task = asyncio.create_task(LateCorrections(node.state, cgroups, spare, Changes(node.state), counted.append).run())
    try:
        yield counted
    finally:
        cgroups.may_end.set()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until_none_is_late(node: OneNode) -> None:
    changed = asyncio.Event()
    node.state.on_change(changed.set)
    async with asyncio.timeout(20):
        while node.state.containers.late():
            changed.clear()
            await changed.wait()


async def test_another_container_waits_while_the_kernel_is_busy_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_corrections, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(late_corrections, "WRITE_SECONDS", 0.02)
    node, cgroups = two_late(), Cgroups()
    cgroups.may_end.clear()
    async with correcting(node, cgroups):
        async with asyncio.timeout(20):
            while len(node.state.containers.late()) == 2 and not cgroups.begun:  # noqa: ASYNC110 - in a thread
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.2)  # several rounds, in which nothing else may begin
        assert cgroups.begun == ["a"]
        assert len(node.state.containers.late()) == 2
        cgroups.may_end.set()
        await until_none_is_late(node)
    assert cgroups.begun == ["a", "b"]


async def test_a_refused_write_is_tried_again_and_does_not_hold_back_other_containers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late_corrections, "AGAIN_SECONDS", 0.02)
    node, cgroups = two_late(), Cgroups()
    cgroups.refused = {"a"}
    async with correcting(node, cgroups) as counted:
        async with asyncio.timeout(20):
            while cgroups.begun.count("a") < 3 or "b" not in cgroups.limits:  # noqa: ASYNC110 - in a thread
                await asyncio.sleep(0.005)
        assert [container.id for container, _ in node.state.containers.late()] == ["a"]
        cgroups.refused.clear()
        await until_none_is_late(node)
    assert counted == [MAX, MAX]


async def test_what_is_in_force_already_is_neither_written_nor_counted() -> None:
    node, cgroups = two_late(), Cgroups()
    cgroups.limits = {"a": 512 * MI, "b": 512 * MI}
    async with correcting(node, cgroups) as counted:
        await until_none_is_late(node)
    assert (cgroups.begun, counted) == ([], [])


@pytest.mark.parametrize(
    ("usage", "is_bound"),
    [
        (USAGE, True),
        (replace(USAGE, numa={}), False),
        (replace(USAGE, numa={0: NumaUsage(pages=PAGES)}), False),
        (replace(USAGE, numa={0: NumaUsage(anon=64 * MI)}), False),
        (replace(USAGE, pages={}, reserved={}, numa={0: NumaUsage(anon=64 * MI)}), True),
    ],
    ids=["located", "nothing-by-node", "no-memory-by-node", "no-pages-by-node", "without-pages"],
)
async def test_a_container_is_bound_only_where_the_kernel_counts_on_which_nodes_its_memory_is(
    usage: ContainerUsage, is_bound: bool
) -> None:
    node, cgroups = two_late(), Using(usage)
    async with correcting(node, cgroups):
        async with asyncio.timeout(20):
            while cgroups.reads < 2:  # noqa: ASYNC110 - in a thread
                await asyncio.sleep(0.005)
    assert cgroups.bound == is_bound

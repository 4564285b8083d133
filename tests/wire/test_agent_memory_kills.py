"""The whole agent reports containers that the kernel has killed because they used all memory of their claims."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cgroup_trees import write_tree
from nodes import NODE, claim_object, machine, ref, share, spec
from whole_agent import WholeNode, whole_node

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory
from dracpu_agent.memory_service import MemoryCompanion
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings
from dracpu_sandbox.node.containers import Given

DRIVER = "dra.memory"
MI = 1024**2
ENABLED = spec(memory=MemorySettings(enabled=True))


def drivers() -> tuple[MemoryDriver]:
    driver = MemoryDriver(NODE, Inventory((NumaMemory(0, CpuSet((0, 1, 2, 3)), 4096 * MI),)), machine())
    driver.system = 0
    return (driver,)


@pytest.fixture
async def node() -> AsyncIterator[WholeNode]:
    async with whole_node(settings=ENABLED, others=drivers, companion=MemoryCompanion) as started:
        yield started


class Pod:
    """A pod whose cgroups count as the kernel does."""

    def __init__(self, node: WholeNode) -> None:
        self.node = node
        self.sandbox = node.pod()
        self.cgroup = self._made("")
        self._count(self.cgroup, 0, 0)

    async def run(self, name: str, claim: int | None = None, limit: int = 0) -> str:
        """Runs a container, perhaps with a claim of 256 MiB; returns its id."""
        cdi: list[str] = []
        if claim is not None:
            result = share("memory-numa000", 1) | {"driver": DRIVER, "consumedCapacity": {"size": str(256 * MI)}}
            self.node.claim(claim_object(claim, [result], pods=[self.sandbox.uid]))
            devices = await self.node.plugins[DRIVER].prepare_one(ref(claim))
            cdi = [name for device in devices for name in device.cdi_ids]
        asked = Given(memory=limit)
        runtime = self.node.runtime
        made = await runtime.create_container(self.sandbox, name, cdi_devices=cdi, asked=asked, start=False)
        self._count(self._made(made), 0, 0)
        await runtime.start_container(made)
        return made

    def kill(self, container_id: str, *, at_limit: int = 1, of_pod: int = 0) -> None:
        """Does what the kernel does: kills a process at the container's limit, at the pod's, or elsewhere."""
        self._count(self.cgroup / container_id, at_limit, 1)
        self._count(self.cgroup, at_limit + of_pod, 1, local=of_pod)

    def end(self, container_id: str) -> None:
        """The last process of a container has ended."""
        (self.cgroup / container_id / "cgroup.events").write_text("populated 0\nfrozen 0\n")

    async def stop(self, container_id: str) -> None:
        """The runtime has removed the container's cgroup, and reports its end."""
        shutil.rmtree(self.cgroup / container_id)
        await self.node.runtime.stop_container(container_id)

    def _made(self, container_id: str) -> Path:
        place = f"kubepods/besteffort/pod{self.sandbox.uid}/{container_id}".rstrip("/")
        return write_tree(self.node.root / "cgroups", place)

    @staticmethod
    def _count(cgroup: Path, at_limit: int, killed: int, local: int = 0) -> None:
        (cgroup / "memory.events").write_text(f"low 0\nmax 7\noom {at_limit}\noom_kill {killed}\n")
        (cgroup / "memory.events.local").write_text(f"low 0\nmax 7\noom {local}\noom_kill 0\n")


def events(node: WholeNode) -> list[dict[str, Any]]:
    found = [item for item in node.api.all("events") if item["reason"] == "KilledAtMemoryClaim"]
    return sorted(found, key=lambda item: str(item["eventTime"]))


def killed(node: WholeNode) -> list[str]:
    """The names of the containers that were reported."""
    return [event["note"].split("container ")[1].partition(",")[0] for event in events(node)]


async def another_is_reported(node: WholeNode, claim: int = 99) -> None:
    """The agent works on one report after another, so it has worked on those before this one."""
    before = len(events(node))
    pod = Pod(node)
    container = await pod.run("another", claim)
    pod.kill(container)
    pod.end(container)
    await node.api.until(lambda: len(events(node)) > before)


async def test_a_container_that_is_killed_at_its_claim_is_reported_with_what_to_do(node: WholeNode) -> None:
    pod = Pod(node)
    container = await pod.run("main", 1)
    pod.kill(container)
    pod.end(container)
    await node.api.until(lambda: bool(events(node)))
    (event,) = events(node)
    named = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "pod-1", "uid": "pod-1"}
    assert event["regarding"] == named
    assert (event["metadata"]["namespace"], event["type"]) == ("default", "Warning")
    assert event["note"] == (
        "the kernel killed container main, because it used all memory that it may use: claim default/claim-1 has 256Mi "
        "of memory; request more in the claim, or let the program use less"
    )
    assert "dra_memory_claim_kills_total 1" in (await node.probe("/metrics"))[1]


async def test_it_is_reported_once_when_the_runtime_reports_its_end_later(node: WholeNode) -> None:
    pod = Pod(node)
    container = await pod.run("main", 1)
    pod.kill(container)
    pod.end(container)
    await node.api.until(lambda: bool(events(node)))
    await pod.stop(container)
    await another_is_reported(node)
    assert "dra_memory_claim_kills_total 2" in (await node.probe("/metrics"))[1]


async def test_a_container_whose_cgroup_the_runtime_has_removed_at_once_is_reported(node: WholeNode) -> None:
    pod = Pod(node)
    await pod.run("other")
    first = await pod.run("first", 1)
    pod.kill(first)
    pod.end(first)
    await node.api.until(lambda: killed(node) == ["first"])  # so the agent has counted in the pod's cgroup before
    await pod.stop(first)
    second = await pod.run("second", 2)
    pod._count(pod.cgroup, 2, 2)
    await pod.stop(second)
    await node.api.until(lambda: killed(node) == ["first", "second"])


@pytest.mark.parametrize("how", [{"at_limit": 0}, {"at_limit": 0, "of_pod": 1}])
async def test_a_container_that_is_killed_elsewhere_is_not_reported(node: WholeNode, how: dict[str, int]) -> None:
    """Where its NUMA nodes or the machine are full, or at the limit of the pod."""
    pod = Pod(node)
    container = await pod.run("main", 1)
    pod.kill(container, **how)
    pod.end(container)
    await pod.stop(container)
    await another_is_reported(node)
    assert killed(node) == ["another"]


async def test_containers_that_other_limits_restrict_are_not_reported(node: WholeNode) -> None:
    pod = Pod(node)
    containers = [await pod.run("smaller", 1, limit=128 * MI), await pod.run("without")]
    for container in containers:
        pod.kill(container)
        pod.end(container)
        await pod.stop(container)
    await another_is_reported(node)
    assert killed(node) == ["another"]


async def test_what_was_counted_before_the_agent_started_is_not_reported(node: WholeNode) -> None:
    pod = Pod(node)
    container = await pod.run("main", 1)
    await node.stop_agent()
    pod.kill(container)  # one process of it: the container goes on
    await node.start_agent()
    await another_is_reported(node)
    pod.end(container)
    await pod.stop(container)
    await another_is_reported(node, 98)
    assert killed(node) == ["another", "another"]

"""The whole agent puts containers right that were created or started without the limits of their claims of memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cgroup_trees import write_tree
from nodes import NODE, claim_object, machine, ref, share, spec
from whole_agent import WholeNode, whole_node

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory_service import MemoryCompanion
from dracpu_agent.work import late_corrections
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.containers import Given, PodSandbox

DRIVER = "dra.memory"
MI, GI = 1024**2, 1024**3
POD = "pod-1"
POD_CGROUP = f"kubepods/besteffort/pod{POD}"
MAX, MEMS = "memory.max", "cpuset.mems"
WANTED = {MAX: str(512 * MI), MEMS: "0"}


def drivers() -> tuple[MemoryDriver]:
    nodes = tuple(NumaMemory(numa, CpuSet((numa,)), 4 * GI, 4, (Pages(2 * MI, 32, 32),)) for numa in (0, 1))
    driver = MemoryDriver(NODE, Inventory(nodes), machine())
    driver.system = 0
    return (driver,)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[WholeNode]:
    for numa in (0, 1):
        meminfo = tmp_path / f"sys/devices/system/node/node{numa}/meminfo"
        meminfo.parent.mkdir(parents=True)
        meminfo.write_text(f"Node {numa} MemTotal: 4194304 kB\nNode {numa} MemFree: 2097152 kB\n")
    tree = (tmp_path / "sys", tmp_path / "proc")
    settings = spec(memory=MemorySettings(enabled=True))
    async with whole_node(settings=settings, others=drivers, companion=MemoryCompanion, tree=tree) as started:
        write_tree(started.root / "cgroups", POD_CGROUP)
        started.read_machine_again()
        await started.api.until(lambda: started.condition("MemoryReady").get("status") == "True")
        yield started


async def prepared(node: WholeNode, request: str = "main") -> list[str]:
    result = share("memory-numa000", 1, request) | {"driver": DRIVER, "consumedCapacity": {"size": str(512 * MI)}}
    node.claim(claim_object(1, [result], pods=[POD]))
    devices = await node.plugins[DRIVER].prepare_one(ref(1))
    return [cdi for device in devices for cdi in device.cdi_ids]


def cgroup_of(node: WholeNode, container_id: str, **files: Any) -> Path:
    """Writes the cgroup of a container that uses memory on both NUMA nodes, and has no limits."""
    cgroup = write_tree(node.root / "cgroups", f"{POD_CGROUP}/{container_id}")
    texts = {
        "memory.current": 300 * MI,
        "memory.stat": f"anon {200 * MI}\nfile {100 * MI}\nshmem 0",
        "memory.numa_stat": f"anon N0={100 * MI} N1={100 * MI}\nfile N0={50 * MI} N1={50 * MI}",
        "memory.max": "max",
        "cpuset.mems": "",
        "hugetlb.2MB.max": "max",
        "hugetlb.2MB.current": 0,
        "hugetlb.2MB.numa_stat": "total=0 N0=0 N1=0",
    }
    for name, text in {**texts, **{name.replace("__", "."): text for name, text in files.items()}}.items():
        (cgroup / name).write_text(f"{text}\n")
    return cgroup


def found(cgroup: Path) -> dict[str, str]:
    return {file: (cgroup / file).read_text().strip() for file in (MAX, MEMS)}


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a file, of which nothing in this process notifies."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the agent writes it
            await asyncio.sleep(0.005)


async def left_alone(node: WholeNode, *, start: bool = True, memory: int = 0) -> str:
    """A container of the claim, created while no agent runs; returns its id."""
    cdi = await prepared(node)
    await node.stop_agent()
    pod = PodSandbox(POD, uid=POD)
    return await node.runtime.create_container(
        pod, "main", cdi_devices=cdi, start=start, asked=Given(memory=memory) if memory else None
    )


async def corrections(node: WholeNode) -> dict[str, float]:
    lines = [line for line in (await node.probe("/metrics"))[1].splitlines() if "late_corrections_total{" in line]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


async def test_a_container_that_was_started_without_its_limits_gets_them_while_it_runs(node: WholeNode) -> None:
    late = await left_alone(node)
    cgroup = cgroup_of(node, late)
    await node.start_agent()
    await until(lambda: found(cgroup) == WANTED)
    await node.runtime.until(lambda: node.runtime.limits_of(late).items() >= WANTED.items())
    assert await corrections(node) == {MAX: 1, MEMS: 1}


async def test_a_program_that_uses_too_much_is_limited_step_by_step(
    node: WholeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_corrections, "AGAIN_SECONDS", 0.02)
    late = await left_alone(node)
    cgroup = cgroup_of(node, late, memory__current=900 * MI)  # 100 MiB of it can be freed at once
    await node.start_agent()
    await until(lambda: found(cgroup)[MAX] == str(840 * MI))
    await node.runtime.until(lambda: node.runtime.limits_of(late).get(MAX) == str(840 * MI))
    assert (found(cgroup)[MEMS], node.runtime.limits_of(late).get(MEMS)) == ("", None)
    (cgroup / "memory.current").write_text(f"{500 * MI}\n")
    await until(lambda: found(cgroup) == WANTED)
    await node.runtime.until(lambda: node.runtime.limits_of(late).items() >= WANTED.items())


async def test_a_container_with_hugepages_on_a_node_that_it_would_lose_is_not_bound(
    node: WholeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_corrections, "AGAIN_SECONDS", 0.02)
    late = await left_alone(node)
    cgroup = cgroup_of(node, late, hugetlb__2MB__numa_stat=f"total={2 * MI} N0=0 N1={2 * MI}")
    await node.start_agent()
    await until(lambda: found(cgroup)[MAX] == WANTED[MAX])
    await node.runtime.until(lambda: node.runtime.limits_of(late).get(MAX) == WANTED[MAX])
    assert found(cgroup)[MEMS] == ""
    (cgroup / "hugetlb.2MB.numa_stat").write_text("total=0 N0=0 N1=0\n")
    await until(lambda: found(cgroup) == WANTED)


async def test_a_container_whose_node_has_no_room_for_its_memory_is_not_bound(
    node: WholeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_corrections, "AGAIN_SECONDS", 0.02)
    late = await left_alone(node)
    cgroup = cgroup_of(node, late)
    meminfo = node.tree[0] / "devices/system/node/node0/meminfo"
    meminfo.write_text("Node 0 MemTotal: 4194304 kB\nNode 0 MemFree: 307200 kB\n")
    await node.start_agent()
    await node.runtime.until(lambda: node.runtime.limits_of(late).get(MAX) == WANTED[MAX])
    assert found(cgroup)[MEMS] == ""
    meminfo.write_text("Node 0 MemTotal: 4194304 kB\nNode 0 MemFree: 2097152 kB\n")
    await until(lambda: found(cgroup) == WANTED)


async def test_a_container_that_was_created_without_an_agent_does_not_start_without_its_limits(node: WholeNode) -> None:
    early = await left_alone(node, start=False)
    cgroup_of(node, early)
    await node.start_agent()
    with pytest.raises(HookError, match=r"without the limits of its claims.*\(cpuset\.mems, memory\.max\)"):
        await node.runtime.start_container(early)


async def test_a_container_that_was_created_without_an_agent_starts_when_its_cgroup_is_right(node: WholeNode) -> None:
    early = await left_alone(node, start=False)
    cgroup_of(node, early, memory__max=512 * MI, cpuset__mems=0)
    await node.start_agent()
    await node.runtime.start_container(early)
    assert await corrections(node) == {MAX: 0, MEMS: 0}

"""The whole agent keeps the limits of hugepages in the cgroups of pods with claims, whatever else writes them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cgroup_trees import write_limits, write_tree
from nodes import NODE, claim_object, machine, ref, share, spec
from whole_agent import WholeNode, whole_node

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.host.inotify import FileWatch, WatchLimitError
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory_service import MemoryCompanion
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.plugins import KubeletError

DRIVER = "dra.memory"
MI = 1024**2
ENABLED = spec(memory=MemorySettings(enabled=True))
POD = "pod-1"  # the UID of the first pod of the node


def drivers() -> tuple[MemoryDriver]:
    found = NumaMemory(0, CpuSet((0, 1, 2, 3)), 4 * 1024 * MI, 4, (Pages(2 * MI, 32, 32),))
    driver = MemoryDriver(NODE, Inventory((found,)), machine())
    driver.system = 0
    return (driver,)


def pages(size: int, request: str = "main") -> dict[str, Any]:
    result = share("hugepages-2mi-numa000", 1, request)
    return result | {"driver": DRIVER, "consumedCapacity": {"size": str(size)}}


def pod_cgroup(node: WholeNode, limit: str = "0") -> Path:
    """Makes the cgroup of the pod, as the kubelet does."""
    tree = node.root / "cgroups"
    return write_limits(write_tree(tree, f"kubepods/besteffort/pod{POD}"), {"2MB": limit})


def limits(cgroup: Path) -> set[str]:
    return {(cgroup / file).read_text().strip() for file in ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max")}


async def until(condition: Callable[[], bool]) -> None:
    """Waits until a file has been written, of which nothing in this process notifies."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the agent writes it
            await asyncio.sleep(0.005)


@pytest.fixture
async def node() -> AsyncIterator[WholeNode]:
    async with whole_node(settings=ENABLED, others=drivers, companion=MemoryCompanion) as started:
        write_tree(started.root / "cgroups", "kubepods/besteffort")
        started.read_machine_again()
        await started.api.until(lambda: started.condition("MemoryReady").get("status") == "True")
        yield started


async def prepared(node: WholeNode, number: int, *results: dict[str, Any]) -> list[str]:
    """Prepares a claim of the pod; returns the ids of its CDI devices."""
    node.claim(claim_object(number, list(results), pods=[POD]))
    devices = await node.plugins[DRIVER].prepare_one(ref(number))
    return [cdi for device in devices for cdi in device.cdi_ids]


async def test_the_pod_may_use_its_pages_when_its_claim_is_prepared(node: WholeNode) -> None:
    cgroup = pod_cgroup(node)
    await prepared(node, 1, pages(16 * MI))
    assert limits(cgroup) == {str(16 * MI)}


async def test_claims_add_to_what_the_spec_of_the_pod_asks_for(node: WholeNode) -> None:
    cgroup = pod_cgroup(node, str(8 * MI))
    await prepared(node, 1, pages(16 * MI))
    await prepared(node, 2, pages(4 * MI))
    assert limits(cgroup) == {str(28 * MI)}


async def test_the_limits_are_written_before_a_container_is_created(node: WholeNode) -> None:
    cdi = await prepared(node, 1, pages(16 * MI))
    cgroup = pod_cgroup(node)  # the kubelet has made it late
    await node.runtime.create_container(node.pod(), "main", cdi_devices=cdi)
    assert limits(cgroup) == {str(16 * MI)}


async def test_a_container_is_refused_while_its_pod_has_no_cgroup(node: WholeNode) -> None:
    cdi = await prepared(node, 1, pages(16 * MI))
    with pytest.raises(HookError, match="the agent finds no cgroup of the pod"):
        await node.runtime.create_container(node.pod(), "main", cdi_devices=cdi)


async def test_a_second_pod_of_a_claim_is_refused_and_the_first_one_is_served(node: WholeNode) -> None:
    cdi = await prepared(node, 1, pages(16 * MI))
    cgroup = pod_cgroup(node)
    first, second = node.pod(), node.pod()
    both = claim_object(1, [pages(16 * MI)], pods=[first.uid, second.uid])
    node.api.edit("resourceclaims", f"default/{ref(1).name}", lambda claim: claim.update(status=both["status"]))
    for _ in range(2):
        with pytest.raises(HookError, match="pod-2 is not the pod .* reserved for 2: use a ResourceClaimTemplate"):
            await node.runtime.create_container(second, "main", cdi_devices=cdi)
    await node.runtime.create_container(first, "main", cdi_devices=cdi)
    assert limits(cgroup) == {str(16 * MI)}


async def test_limits_that_the_kubelet_resets_are_written_again_and_counted(node: WholeNode) -> None:
    cgroup = pod_cgroup(node)
    await prepared(node, 1, pages(16 * MI))
    for _ in range(3):
        write_limits(cgroup, {"2MB": "0"})
        await until(lambda: limits(cgroup) == {str(16 * MI)})
    repairs = [line for line in (await node.probe("/metrics"))[1].splitlines() if "limit_repairs_total " in line]
    assert float(repairs[-1].split()[-1]) >= 3


async def test_an_agent_without_an_inotify_instance_serves_claims_all_the_same() -> None:
    def no_watch() -> FileWatch:
        raise WatchLimitError("no file can be watched: raise fs.inotify.max_user_instances")

    companion = partial(MemoryCompanion, open_watch=no_watch)
    async with whole_node(settings=ENABLED, others=drivers, companion=companion) as node:
        cgroup = pod_cgroup(node)
        node.read_machine_again()
        await node.api.until(lambda: node.condition("MemoryReady").get("status") == "True")
        cdi = await prepared(node, 1, pages(16 * MI))
        write_limits(cgroup, {"2MB": "0"})
        await node.runtime.create_container(node.pod(), "main", cdi_devices=cdi)
        assert limits(cgroup) == {str(16 * MI)}


async def test_another_agent_adds_nothing_to_limits_that_have_the_claims_already(node: WholeNode) -> None:
    cgroup = pod_cgroup(node, str(8 * MI))
    cdi = await prepared(node, 1, pages(16 * MI))
    await node.stop_agent()
    write_limits(cgroup, {"2MB": "0"})  # the kubelet resizes the pod meanwhile
    await node.start_agent()
    await until(lambda: limits(cgroup) == {str(24 * MI)})
    await node.runtime.create_container(node.pod(), "main", cdi_devices=cdi)
    assert limits(cgroup) == {str(24 * MI)}


async def test_a_claim_that_has_ended_leaves_the_pod_what_its_spec_asks_for(node: WholeNode) -> None:
    cgroup = pod_cgroup(node, str(8 * MI))
    await prepared(node, 1, pages(16 * MI))
    await node.plugins[DRIVER].unprepare_one(ref(1))
    await until(lambda: limits(cgroup) == {str(8 * MI)})


def offered(node: WholeNode) -> dict[str, str]:
    """The capacities of the published devices of memory."""
    slices = [item["spec"] for item in node.api.all("resourceslices") if item["spec"]["driver"] == DRIVER]
    devices = [device for found in slices for device in found.get("devices") or ()]
    return {device["name"]: device["capacity"]["size"]["value"] for device in devices}


def set_controllers(node: WholeNode, cgroup: str, controllers: str) -> None:
    (node.root / "cgroups" / cgroup / "cgroup.controllers").write_text(f"{controllers}\n")
    node.read_machine_again()


async def test_no_pages_are_given_or_offered_where_limits_cannot_be_written(node: WholeNode) -> None:
    pod_cgroup(node)
    await prepared(node, 1, pages(16 * MI))
    await node.api.until(lambda: offered(node).get("hugepages-2mi-numa000") == "64Mi")
    memory = offered(node)["memory-numa000"]
    set_controllers(node, "kubepods", "cpu memory")
    await node.api.until(lambda: node.condition("MemoryReady").get("reason") == "LimitsNotWritable")
    # what the claim consumes stays, so that the scheduler refuses any further amount
    await node.api.until(lambda: offered(node) == {"memory-numa000": memory, "hugepages-2mi-numa000": "16Mi"})
    with pytest.raises(KubeletError, match="does not pass the hugetlb controller on"):
        await prepared(node, 2, pages(4 * MI))
    set_controllers(node, "kubepods", "cpu memory hugetlb")
    await node.api.until(lambda: offered(node) == {"memory-numa000": memory, "hugepages-2mi-numa000": "64Mi"})
    await node.plugins[DRIVER].prepare_one(ref(2))


async def test_no_memory_is_given_or_offered_without_cgroup_v2(node: WholeNode) -> None:
    root = node.root / "cgroups/cgroup.controllers"
    text = root.read_text()
    await node.api.until(lambda: len(offered(node)) == 2)
    root.unlink()
    node.read_machine_again()
    await node.api.until(lambda: node.condition("MemoryReady").get("reason") == "LimitsNotWritable")
    assert "start the node with cgroup v2" in node.condition("MemoryReady")["message"]
    await node.api.until(lambda: not offered(node))
    result = pages(MI) | {"device": "memory-numa000", "consumedCapacity": {"size": "64Mi"}}
    with pytest.raises(KubeletError, match="memory cannot be limited: .* is no cgroup v2 tree"):
        await prepared(node, 1, result)
    root.write_text(text)
    node.read_machine_again()
    await node.api.until(lambda: len(offered(node)) == 2)
    await node.plugins[DRIVER].prepare_one(ref(1))


def other_pod(node: WholeNode, limit: int, used: int) -> None:
    """Makes the cgroup of a pod without claims, whose spec requests pages."""
    cgroup = write_limits(write_tree(node.root / "cgroups", "kubepods/burstable/podother"), {"2MB": str(limit)})
    (cgroup / "hugetlb.2MB.current").write_text(f"{used}\n")


async def test_a_claim_waits_for_pages_that_a_pod_may_take_by_its_spec(node: WholeNode) -> None:
    pod_cgroup(node)
    other_pod(node, 16 * MI, 4 * MI)  # the machine has 64 MiB of pages, all free when they were read last
    with pytest.raises(KubeletError, match="asks for 56Mi, and 52Mi are left: pods that request hugepages"):
        await prepared(node, 1, pages(56 * MI))
    other_pod(node, 8 * MI, 0)
    devices = await node.plugins[DRIVER].prepare_one(ref(1))
    assert devices
    other_pod(node, 64 * MI, 0)
    assert await node.plugins[DRIVER].prepare_one(ref(1)) == devices, "a claim that is held keeps its pages"


async def test_what_claims_of_other_pods_allow_is_not_taken_for_what_their_specs_request(node: WholeNode) -> None:
    (pod_cgroup(node) / "hugetlb.2MB.current").write_text("0\n")
    await prepared(node, 1, pages(16 * MI))
    assert await prepared(node, 2, pages(48 * MI))

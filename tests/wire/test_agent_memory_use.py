"""The whole agent shows what containers use of their claims of memory: in its CpuNode, metrics, Events and `state`."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cgroup_trees import write_limits, write_tree
from cgroup_trees import write_use as use
from fake_pod_resources import pod_resources
from nodes import NODE, claim_object, machine, ref, share, spec
from whole_agent import WholeNode, whole_node

from dracpu_agent.cli.state import table
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory_service import MemoryCompanion
from dracpu_agent.observe.state import read_state
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings
from dracpu_sandbox.node.containers import Given

DRIVER = "dra.memory"
MI, GI = 1024**2, 1024**3
ENABLED = spec(memory=MemorySettings(enabled=True))
PLACE = "kubepods/besteffort/podpod-1"  # of the first pod of the node


def drivers() -> tuple[MemoryDriver]:
    pages = (Pages(2 * MI, 32, 32),)
    found = (NumaMemory(0, CpuSet((0, 1, 2, 3)), 4 * GI, 4, pages), NumaMemory(1, CpuSet((4, 5)), 4 * GI, 4, pages))
    driver = MemoryDriver(NODE, Inventory(found), machine())
    driver.system = 0
    return (driver,)


@pytest.fixture
async def node() -> AsyncIterator[WholeNode]:
    async with whole_node(settings=ENABLED, others=drivers, companion=MemoryCompanion) as started:
        write_limits(write_tree(started.root / "cgroups", PLACE), {"2MB": "0"})
        started.read_machine_again()
        await started.api.until(lambda: started.condition("MemoryReady").get("status") == "True")
        yield started


def some(device: str, size: int, request: str) -> dict[str, Any]:
    return share(device, 1, request) | {"driver": DRIVER, "consumedCapacity": {"size": str(size)}}


async def run(node: WholeNode, *results: dict[str, Any], score: int = -997) -> Path:
    """Runs the container of a pod with a claim; returns its cgroup."""
    node.claim(claim_object(1, list(results), pods=["pod-1"]))
    devices = await node.plugins[DRIVER].prepare_one(ref(1))
    cdi = [name for device in devices for name in device.cdi_ids]
    pod = replace(node.pod(), cgroup=PLACE)
    made = await node.runtime.create_container(pod, "main", cdi_devices=cdi, asked=Given(score=score))
    return write_limits(write_tree(node.root / "cgroups", f"{PLACE}/{made}"), {"2MB": "max"})


def used(node: WholeNode) -> Mapping[str, str]:
    return {f"{entry['kind']}-{entry['numaNode']}": entry["used"] for entry in node.status["memory"] if "used" in entry}


async def shown(node: WholeNode, expected: Mapping[str, str]) -> None:
    node.read_machine_again()
    await node.api.until(lambda: used(node) == expected)


async def test_what_containers_use_is_shown_in_the_cpu_node_and_in_metrics(node: WholeNode) -> None:
    cgroup = await run(node, some("memory-numa000", 512 * MI, "a"), some("hugepages-2mi-numa001", 16 * MI, "b"))
    use(cgroup, (100 * MI, 0), (0, 6 * MI))
    await shown(node, {"memory-0": "100Mi", "hugepages_2Mi-1": "6Mi"})
    metrics = (await node.probe("/metrics"))[1]
    assert f'dra_memory_used_bytes{{kind="memory"}} {float(100 * MI)!r}' in metrics
    assert f'dra_memory_used_bytes{{kind="hugepages_2Mi"}} {float(6 * MI)!r}' in metrics
    await node.plugins[DRIVER].unprepare_one(ref(1))


async def test_state_shows_how_much_of_each_claim_is_used(node: WholeNode) -> None:
    cgroup = await run(node, some("memory-numa000", 512 * MI, "a"), some("hugepages-2mi-numa001", 16 * MI, "b"))
    use(cgroup, (100 * MI, 0), (0, 6 * MI))
    await shown(node, {"memory-0": "100Mi", "hugepages_2Mi-1": "6Mi"})
    document = await in_file_thread(read_state, node.root / "state")
    assert isinstance(document, dict)
    (claim,) = json.loads(json.dumps(document))["claims"]
    assert claim["used"] == [
        {"numaNode": 0, "kind": "memory", "claimed": "512Mi", "used": "100Mi"},
        {"numaNode": 1, "kind": "hugepages_2Mi", "claimed": "16Mi", "used": "6Mi"},
    ]
    head, row = table(document).splitlines()[-2:]
    assert head.split() == ["CLAIM", "HOLDS", "USED", "STATE", "UID"]
    assert row.startswith("default/claim-1  512Mi of memory on NUMA node 0, 16Mi of hugepages_2Mi on NUMA node 1  ")
    assert "  100Mi, 6Mi  held" in row


async def test_use_beyond_the_claim_on_a_numa_node_has_an_event_on_the_pod(node: WholeNode) -> None:
    cgroup = await run(node, some("memory-numa000", 512 * MI, "a"), some("memory-numa001", 512 * MI, "b"))
    use(cgroup, (612 * MI, 50 * MI))
    await shown(node, {"memory-0": "512Mi", "memory-1": "50Mi"})
    await node.api.until(lambda: any(item["reason"] == "MemoryBeyondClaim" for item in node.api.all("events")))
    (event,) = (item for item in node.api.all("events") if item["reason"] == "MemoryBeyondClaim")
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Pod", "pod-1")
    assert event["note"].startswith(
        "container main uses more memory on NUMA node 0 than its claims have there (claim default/claim-1 has 1Gi of "
        "memory): other claims may lack it"
    )
    assert f'claims_bytes{{kind="memory"}} {float(100 * MI)!r}' in (await node.probe("/metrics"))[1]


async def test_nothing_is_shown_while_the_use_of_a_container_is_not_known(node: WholeNode) -> None:
    cgroup = await run(node, some("memory-numa000", 512 * MI, "a"))
    use(cgroup, (100 * MI, 0))
    (cgroup / "memory.numa_stat").write_text("anon N0=many\n")
    await shown(node, {})
    use(cgroup, (100 * MI, 0))
    await shown(node, {"memory-0": "100Mi"})


async def test_a_static_memory_manager_of_the_kubelet_is_a_warning_and_no_obstacle(node: WholeNode) -> None:
    def reason() -> tuple[str, str]:
        found = node.condition("MemoryReady")
        return found["status"], found["reason"]

    async with pod_resources(node.root, memory=True):
        await node.start_kubelet()
        await node.api.until(lambda: reason() == ("True", "StaticMemoryManager"))
        node.claim(claim_object(1, [some("memory-numa000", 512 * MI, "a")], pods=["pod-1"]))
        assert await node.plugins[DRIVER].prepare_one(ref(1))
    async with pod_resources(node.root):
        await node.start_kubelet()
        await node.api.until(lambda: reason()[1] != "StaticMemoryManager")


async def test_a_pod_whose_request_does_not_cover_its_claim_has_an_event_and_the_node_a_condition(
    node: WholeNode,
) -> None:
    await run(node, some("memory-numa000", 2 * GI, "a"), score=999)
    await node.api.until(lambda: node.condition("NotCounted").get("status") == "True")
    assert node.condition("NotCounted")["message"].startswith(
        "the memory requests of 1 pod do not cover the claims, so that the kubelet evicts them first when memory is "
        "short: default/pod-1; set the memory requests"
    )
    await node.api.until(lambda: any(item["reason"] == "NotCounted" for item in node.api.all("events")))
    (event,) = (item for item in node.api.all("events") if item["reason"] == "NotCounted")
    assert event["regarding"]["uid"] == "pod-1"
    assert event["note"].startswith("claim default/claim-1 has 2Gi of memory, and container main requests less")
    assert event["note"].endswith("set the container's memory request to 2Gi")
    (container,) = node.runtime.containers
    await node.runtime.stop_container(container)
    await node.api.until(lambda: node.condition("NotCounted") == {})


async def test_a_pod_whose_request_covers_its_claim_is_counted(node: WholeNode) -> None:
    cgroup = await run(node, some("memory-numa000", 2 * GI, "a"), score=700)
    use(cgroup, (100 * MI, 0))
    await shown(node, {"memory-0": "100Mi"})
    assert node.condition("NotCounted") == {}

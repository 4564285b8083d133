"""The whole agent with devices of CPUs that offer memory: slices, CDI files, limits of containers and pods, status."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cgroup_trees import write_limits, write_tree
from memory_beside_cpus import DEVICES, MI, NUMA_0, NUMA_1, WITH_CPUS, cpus_with, memory_driver, settling, some
from nodes import claim_object, ref, uid
from whole_agent import WholeNode, whole_node

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory_service import MemoryCompanion
from dracpu_sandbox.node.plugins import KubeletError

POD = "pod-1"  # the UID of the first pod of the node
PLACE = f"kubepods/besteffort/pod{POD}"


def drivers() -> tuple[MemoryDriver]:
    return (memory_driver(),)


@pytest.fixture
async def node() -> AsyncIterator[WholeNode]:
    async with whole_node(settings=WITH_CPUS, others=drivers, companion=MemoryCompanion) as started:
        write_limits(write_tree(started.root / "cgroups", PLACE), {"2MB": "0", "1GB": "0"})
        started.read_machine_again()
        await started.api.until(lambda: started.condition("MemoryReady").get("status") == "True")
        yield started


def offered(node: WholeNode) -> dict[str, dict[str, str]]:
    """Returns what each published device offers."""
    return {
        name: {capacity.removeprefix("dra.cpu/"): found["value"] for capacity, found in device["capacity"].items()}
        for name, device in node.devices().items()
    }


def limit(node: WholeNode) -> str:
    """Returns how many bytes of hugepages of 2 MiB the pod may use."""
    return (node.root / "cgroups" / PLACE / "hugetlb.2MB.max").read_text().strip()


async def prepared(node: WholeNode, number: int, *results: dict[str, Any]) -> list[str]:
    """Prepares a claim of the pod; returns the ids of its CDI devices."""
    node.claim(claim_object(number, list(results), pods=[POD]))
    devices = await node.plugins[results[0]["driver"]].prepare_one(ref(number))
    return [cdi for device in devices for cdi in device.cdi_ids]


async def test_the_slices_of_cpus_offer_the_memory_and_there_are_no_others(node: WholeNode) -> None:
    await node.api.until(lambda: "hugepages_2Mi" in offered(node)[NUMA_0])  # the agent has found that it can limit them
    assert offered(node) == {
        NUMA_0: {"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "32Mi", "hugepages_1Gi": "1Gi"},
        NUMA_1: {"cpu": "4", "memory": "1Gi"},
    }
    assert {item["spec"]["driver"] for item in node.api.all("resourceslices")} == {"dra.cpu"}


async def test_a_claim_of_cpus_and_memory_is_prepared_limits_its_container_and_is_given_back(node: WholeNode) -> None:
    cdi = await prepared(node, 1, cpus_with(NUMA_0, 2, memory="512Mi", hugepages_2Mi="16Mi"))
    assert cdi == [f"dra.k8s.io/cpu=claim-{uid(1)}"]
    (file,) = (node.root / "cdi").iterdir()
    (device,) = json.loads(file.read_text())["devices"]
    assert device["containerEdits"]["env"] == [
        f"DRA_CPUSET_{uid(1)}=2-3",
        f"DRAMEMORY_{uid(1)}_memory=numanode:0,size:512Mi",
        f"DRAMEMORY_{uid(1)}_hugepages_2Mi=numanode:0,size:16Mi",
        f"DRAMEMORY_{uid(1)}_NUMANodes=0",
    ]
    assert limit(node) == str(16 * MI)  # before the kubelet starts the pod
    main = await node.runtime.create_container(node.pod(), "main", cdi_devices=cdi)
    assert node.runtime.cpuset_of(main) == "2-3"
    limits = node.runtime.limits_of(main)
    assert (limits["memory.max"], limits["cpuset.mems"], limits["hugetlb.2MB.max"]) == (
        str(512 * MI),
        "0",
        str(16 * MI),
    )
    claim = f"default/{ref(1).name}"
    await node.api.until(lambda: node.api.get("resourceclaims", claim)["status"].get("devices"))
    (entry,) = node.api.get("resourceclaims", claim)["status"]["devices"]
    assert entry["data"] == {"cpuset": "2-3", "numaNode": 0, "memory": "512Mi", "hugepages_2Mi": "16Mi"}
    metrics = (await node.probe("/metrics"))[1]
    assert f'dra_memory_promised_bytes{{kind="memory"}} {float(512 * MI)!r}' in metrics

    await node.stop_agent()
    await node.start_agent()
    assert await node.kubelet.prepare_one(ref(1))
    assert limit(node) == str(16 * MI)
    await node.runtime.stop_container(main)
    await node.kubelet.unprepare_one(ref(1))
    assert not file.exists()
    assert "dra_memory_promised_bytes{" not in (await node.probe("/metrics"))[1]


async def test_memory_that_is_not_left_is_refused_with_the_reason(node: WholeNode) -> None:
    await prepared(node, 1, cpus_with(NUMA_0, 1, memory="768Mi"))
    node.claim(claim_object(2, [cpus_with(NUMA_0, 1, memory="512Mi")], pods=[POD]))
    with pytest.raises(KubeletError, match="it asks for 512Mi, and 256Mi are not promised to others"):
        await node.kubelet.prepare_one(ref(2))
    await node.kubelet.unprepare_one(ref(1))
    await node.kubelet.prepare_one(ref(2))


async def test_a_node_settles_and_drains_when_its_memory_gets_devices_of_its_own(node: WholeNode) -> None:
    await prepared(node, 1, cpus_with(NUMA_0, 1, memory="256Mi"))
    node.configure(settling(DEVICES, 1))
    await node.api.until(lambda: node.status.get("phase") == "Settling")
    await node.api.until(lambda: "taints" in node.devices()[NUMA_0])
    assert set(node.devices()) == {NUMA_0, NUMA_1}
    await node.api.until(lambda: node.status.get("phase") == "Draining")
    await node.api.until(lambda: offered(node).get("memory-numa000") == {"size": "768Mi"})
    await node.api.until(lambda: set(offered(node)[NUMA_0]) == {"cpu"})
    assert "taints" not in node.devices()[NUMA_0]
    (shown,) = node.status["claims"]
    assert (shown["cpus"], shown["memory"]) == ("2", "256Mi of memory on NUMA node 0")
    await prepared(node, 2, some("memory-numa000", "768Mi"))
    await node.kubelet.unprepare_one(ref(1))
    await node.api.until(lambda: offered(node)["memory-numa000"] == {"size": "1Gi"})
    await node.ready()


async def test_an_agent_without_the_driver_of_memory_refuses_memory_and_offers_none() -> None:
    async with whole_node(settings=WITH_CPUS) as node:
        node.claim(claim_object(1, [cpus_with(NUMA_0, 1, memory="64Mi")], pods=[POD]))
        with pytest.raises(KubeletError, match="this node's agent serves CPUs alone: set agent.memory.enabled"):
            await node.kubelet.prepare_one(ref(1))
        assert "memory" not in offered(node)[NUMA_0]

"""The whole agent keeps the kubelet from resizing pods that have reserved hugepages of claims and not touched them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cgroup_trees import write_limits, write_tree
from nodes import NODE, claim_object, machine, ref, share, spec
from whole_agent import WholeNode, whole_node

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory_service import MemoryCompanion
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.containers import Given

DRIVER = "dra.memory"
MI = 1024**2
MORE = Given(memory=512 * MI)


def drivers() -> tuple[MemoryDriver]:
    found = NumaMemory(0, CpuSet((0, 1, 2, 3)), 4 * 1024 * MI, 4, (Pages(2 * MI, 32, 32),))
    driver = MemoryDriver(NODE, Inventory((found,)), machine())
    driver.system = 0
    return (driver,)


@pytest.fixture
async def node() -> AsyncIterator[WholeNode]:
    settings = spec(memory=MemorySettings(enabled=True))
    async with whole_node(settings=settings, others=drivers, companion=MemoryCompanion) as started:
        write_tree(started.root / "cgroups", "kubepods/besteffort")
        started.read_machine_again()
        await started.api.until(lambda: started.condition("MemoryReady").get("status") == "True")
        yield started


def pod_cgroup(node: WholeNode, pod: str, *, reserved: str, used: str) -> Path:
    """Makes the cgroup of a pod whose processes use and have reserved this many bytes of pages."""
    cgroup = write_limits(write_tree(node.root / "cgroups", f"kubepods/besteffort/pod{pod}"), {"2MB": "0"})
    (cgroup / "hugetlb.2MB.rsvd.current").write_text(f"{reserved}\n")
    (cgroup / "hugetlb.2MB.current").write_text(f"{used}\n")
    return cgroup


async def claimed(node: WholeNode, pod: str) -> None:
    """Prepares a claim of pages of the pod."""
    result = share("hugepages-2mi-numa000", 1) | {"driver": DRIVER, "consumedCapacity": {"size": "16Mi"}}
    node.claim(claim_object(1, [result], pods=[pod]))
    await node.plugins[DRIVER].prepare_one(ref(1))


async def test_a_pod_with_reserved_pages_is_resized_after_it_has_touched_them(node: WholeNode) -> None:
    pod = node.pod()
    cgroup = pod_cgroup(node, pod.uid, reserved=str(16 * MI), used=str(6 * MI))
    await claimed(node, pod.uid)
    with pytest.raises(HookError, match="its processes have reserved 10Mi of hugepages_2Mi that they have not touched"):
        await node.runtime.update_pod(pod, MORE)
    (cgroup / "hugetlb.2MB.current").write_text(f"{16 * MI}\n")
    await node.runtime.update_pod(pod, MORE)
    assert node.runtime.connections == 1


async def test_a_pod_without_claims_of_pages_is_resized_whatever_it_has_reserved(node: WholeNode) -> None:
    pod, other = node.pod(), node.pod()
    await claimed(node, other.uid)
    pod_cgroup(node, pod.uid, reserved=str(16 * MI), used="0")
    await node.runtime.update_pod(pod, MORE)


async def test_a_pod_whose_cgroup_cannot_be_read_stays_as_it_is(node: WholeNode) -> None:
    pod = node.pod()
    pod_cgroup(node, pod.uid, reserved="many", used="0")
    await claimed(node, pod.uid)
    with pytest.raises(HookError, match=r'the pod stay as they are: .*rsvd.current contains "many"'):
        await node.runtime.update_pod(pod, MORE)


async def test_a_kernel_that_counts_no_reservations_does_not_prevent_resizes(node: WholeNode) -> None:
    pod = node.pod()
    cgroup = pod_cgroup(node, pod.uid, reserved="0", used=str(6 * MI))
    (cgroup / "hugetlb.2MB.rsvd.current").unlink()
    await claimed(node, pod.uid)
    await node.runtime.update_pod(pod, MORE)


async def test_without_memory_the_agent_subscribes_to_no_resizes() -> None:
    async with whole_node() as node:
        assert not node.runtime.subscribed & 1 << (nri.UPDATE_POD_SANDBOX - 1)

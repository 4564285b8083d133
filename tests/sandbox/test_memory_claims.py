"""Claims of memory and hugepages in the whole system: published, scheduled, prepared, limited, and kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from memory_node import GI, LIMITS, MI, SMALL, content

from dracpu_sandbox.client import STRATEGIC
from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.node.cgroups import NoMemoryError
from dracpu_sandbox.node.containers import Container
from dracpu_sandbox.node.node import SimulatedNode
from dracpu_sandbox.resources import CLAIMS, CONFIGS, CPU_NODES, EVENTS, PODS, SLICES
from dracpu_sandbox.stories.story import Story

DRIVER = "dra.memory"
ONE_NUMA_NODE = {"matchAttribute": "resource.kubernetes.io/numaNode"}


def request(name: str, device_class: str, capacity: str, amount: str) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, "capacity": {"requests": {capacity: amount}}}}


CPUS = request("cpus", "dra.cpu", "dra.cpu/cpu", "2")


def memory(amount: str) -> dict[str, Any]:
    return request("memory", "dra.memory", "size", amount)


def pages(amount: str) -> dict[str, Any]:
    return request("pages", "dra.hugepages-2m", "size", amount)


def config(requested: str, **parameters: str) -> dict[str, Any]:
    kind = {"apiVersion": "dra.cpu/v1alpha1", "kind": "MemoryClaimParameters"}
    return {"requests": [requested], "opaque": {"driver": DRIVER, "parameters": kind | parameters}}


def claim(name: str, *requests: dict[str, Any], configs: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    spec = {"devices": {"requests": list(requests), "constraints": [ONE_NUMA_NODE], "config": list(configs)}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "metadata": metadata, "spec": spec}


def pod(name: str, spec: Mapping[str, Any] | None = None, **resources: Any) -> dict[str, Any]:
    """A pod whose container uses the claim with the pod's name; `spec` are further fields of its spec."""
    main = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": name}], **resources}}
    spec = {"containers": [main], "resourceClaims": [{"name": name, "resourceClaimName": name}], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


class Offering:
    """A cluster whose nodes offer memory."""

    def __init__(self, cluster: Sandbox, story: Story) -> None:
        self.client = cluster.client
        self.node: SimulatedNode = cluster.nodes["node-1"]
        self.story = story

    async def offer(self, **settings: Any) -> None:
        await self.client.patch(CONFIGS, "default", {"spec": {"memory": {"enabled": True, **settings}}})
        await self.story.until("memory is offered", self.offers)

    async def offers(self) -> bool:
        """Whether every node offers ordinary memory, which comes when the Nodes have been read."""
        slices = [item["spec"] for item in await self.client.list(SLICES)]
        devices = [
            device["name"] for spec in slices if spec["driver"] == DRIVER for device in spec.get("devices") or ()
        ]
        return "memory-numa000" in devices

    async def run(
        self, name: str, *requests: dict[str, Any], configs: Sequence[dict[str, Any]] = (), **resources: Any
    ) -> None:
        await self.client.create(CLAIMS, claim(name, *requests, configs=configs))
        await self.client.create(PODS, pod(name, **resources))
        await self.story.until_running(name)

    def cgroup(self, name: str) -> Path:
        return self.node.cgroup_of("default", name, "main")

    def container(self, name: str) -> Container:
        return self.node.container_of("default", name, "main")

    async def take(self, name: str, size: int, page: int = 0, *, touch: bool = True) -> None:
        await self.node.take("default", name, "main", size, page=page, touch=touch)

    async def resize(self, name: str, limit: str) -> None:
        """Changes the limit of a pod's memory."""
        change = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": limit}}}]}}
        await self.client.patch(PODS, name, change, "default", subresource="resize", kind=STRATEGIC)

    async def resizing(self, name: str) -> str:
        """The message of the pod's condition about its resize; "" without one."""
        conditions = (await self.client.get(PODS, name, "default"))["status"].get("conditions") or ()
        found = [condition for condition in conditions if condition["type"] == "PodResizeInProgress"]
        return str(found[0].get("message", "")) if found else ""


@pytest.fixture
async def offering(cluster: Sandbox, story: Story) -> Offering:
    offering = Offering(cluster, story)
    await offering.offer()
    return offering


async def test_a_pod_gets_cpus_memory_and_pages_of_one_numa_node_and_no_more_than_its_claim(offering: Offering) -> None:
    await offering.run("dpdk", CPUS, memory("256Mi"), pages("16Mi"))
    cgroup = offering.cgroup("dpdk")
    limit, mems, cpus = content(cgroup, "memory.max", "cpuset.mems", "cpuset.cpus")
    assert limit == str(256 * MI)
    assert mems == ("0" if cpus in {"0-1", "2-3"} else "1")
    assert content(cgroup.parent, *LIMITS) == [str(16 * MI), str(16 * MI), "0", "0"]
    await offering.take("dpdk", 16 * MI, SMALL)
    with pytest.raises(NoMemoryError):
        await offering.take("dpdk", 2 * MI, SMALL)


async def test_a_pod_keeps_its_pages_when_the_kubelet_resets_them_at_a_resize(offering: Offering) -> None:
    await offering.run("dpdk", memory("256Mi"), pages("16Mi"), limits={"memory": "128Mi"}, requests={"memory": "64Mi"})
    cgroup = offering.cgroup("dpdk")
    assert content(cgroup, "memory.max") == [str(128 * MI)], "the limit of the spec is smaller"
    await offering.resize("dpdk", "1Gi")
    await offering.story.until("the pod has its new limit", lambda: content(cgroup.parent, "memory.max") == [str(GI)])
    limits = [str(16 * MI), str(16 * MI), "0", "0"]
    await offering.story.until("the pages are back", lambda: content(cgroup.parent, *LIMITS) == limits)
    await offering.story.until(
        "the claim limits the container", lambda: content(cgroup, "memory.max") == [str(256 * MI)]
    )


async def test_pods_wait_for_memory_that_is_promised_until_it_is_free(offering: Offering) -> None:
    slices = [item["spec"] for item in await offering.client.list(SLICES)]
    count = sum(spec["driver"] == DRIVER for spec in slices)
    for number in range(2 * count):  # all pages of the two NUMA nodes of each node
        await offering.run(f"holder-{number}", pages("256Mi"))
    await offering.client.create(CLAIMS, claim("late", pages("2Mi")))
    await offering.client.create(PODS, pod("late"))
    await offering.story.until_waiting("late", "cannot allocate all claims")
    await offering.client.delete(PODS, "holder-0", "default")
    await offering.story.until_running("late")


async def test_a_pod_is_resized_when_it_has_touched_the_pages_that_it_has_reserved(offering: Offering) -> None:
    resources: dict[str, Any] = {"limits": {"memory": "128Mi"}, "requests": {"memory": "64Mi"}}
    await offering.run("dpdk", memory("512Mi"), pages("16Mi"), **resources)
    cgroup = offering.cgroup("dpdk").parent
    await offering.take("dpdk", 16 * MI, SMALL, touch=False)
    await offering.resize("dpdk", "256Mi")

    async def refused() -> bool:
        message = "its processes have reserved 16Mi of hugepages_2Mi that they have not touched"
        return message in await offering.resizing("dpdk")

    await offering.story.until("the resize is refused", refused)
    assert content(cgroup, "memory.max", *LIMITS[:2]) == [str(128 * MI), str(16 * MI), str(16 * MI)]
    await offering.node.touch("default", "dpdk", "main", 16 * MI, page=SMALL)
    await offering.story.until("the pod has its new limit", lambda: content(cgroup, "memory.max") == [str(256 * MI)])

    async def done() -> bool:
        return not await offering.resizing("dpdk")

    await offering.story.until("the resize is complete", done)
    assert content(cgroup, *LIMITS[:2]) == [str(16 * MI)] * 2
    assert offering.container("dpdk").running


async def test_memory_that_prefers_its_numa_node_comes_from_another_rather_than_not_at_all(offering: Offering) -> None:
    await offering.run("near", memory("1Gi"), configs=[config("memory", binding="Preferred")])
    cgroup = offering.cgroup("near")
    assert content(cgroup, "cpuset.mems", "memory.max") == ["", str(GI)]
    assert str(offering.container("near").preferred) == "0"
    await offering.client.create(PODS, pod("hog", {"resourceClaims": []}, claims=[]))
    await offering.story.until_running("hog")
    await offering.take("hog", 2 * GI)  # of node 0, which has less than 1 GiB left then
    await offering.take("near", GI - MI)
    (shown,) = (line.split() for line in content(cgroup, "memory.numa_stat")[0].splitlines() if "anon" in line)
    used = {node: int(size) for node, size in (entry.split("=") for entry in shown[1:])}
    assert sum(used.values()) == GI - MI
    assert all(size > 0 for size in used.values()), used
    assert offering.container("near").running


async def test_files_of_hugepages_are_mounted_and_refused_where_the_kernel_mounts_none(offering: Offering) -> None:
    mounted = [config("pages", mount="/dev/hugepages")]
    await offering.run("dpdk", pages("16Mi"), configs=mounted)
    (mount,) = offering.container("dpdk").mounts
    assert (mount.destination, mount.type, mount.source) == ("/dev/hugepages", "hugetlbfs", "nodev")
    assert {"pagesize=2M", f"size={16 * MI}", "mode=1777"} <= set(mount.options)
    await offering.client.create(CLAIMS, claim("apart", pages("16Mi"), configs=mounted))
    await offering.client.create(PODS, pod("apart", {"hostUsers": False}))
    await offering.story.until_waiting("apart", "runs in a user namespace, where the kernel mounts no hugepages")


async def test_a_claim_with_parameters_that_are_not_known_is_refused_by_name(offering: Offering) -> None:
    await offering.client.create(CLAIMS, claim("typo", memory("64Mi"), configs=[config("memory", bindings="Strict")]))
    await offering.client.create(PODS, pod("typo"))
    await offering.story.until_waiting("typo", "parameters.bindings is an unknown field")


async def test_a_pod_that_is_killed_at_its_claim_has_an_event_that_names_the_claim(offering: Offering) -> None:
    await offering.run("small", memory("64Mi"))
    await offering.take("small", 65 * MI)

    async def is_reported() -> bool:
        notes = [item["note"] for item in await offering.client.list(EVENTS) if item["reason"] == "KilledAtMemoryClaim"]
        return len(notes) == 1 and "claim default/small has 64Mi of memory" in notes[0]

    await offering.story.until("the kill is reported", is_reported)


async def test_what_a_pod_uses_of_its_claim_is_shown(offering: Offering) -> None:
    await offering.run("half", memory("64Mi"))
    await offering.take("half", 32 * MI)
    await offering.node.stop_agent()
    await offering.node.start_agent()  # it reads at its start, and not only after half a minute

    async def is_shown() -> bool:
        memory = (await offering.client.get(CPU_NODES, "node-1"))["status"]["memory"]
        return [entry["used"] for entry in memory if entry["promised"] == "64Mi" and "used" in entry] == ["32Mi"]

    await offering.story.until("the use is shown", is_shown)

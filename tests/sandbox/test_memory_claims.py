"""Claims of memory and hugepages in the whole system: published, scheduled, prepared, limited, and kept."""

from typing import Any

import pytest
from memory_node import GI, LIMITS, MI, SMALL, content
from memory_offering import CPUS, DRIVER, Offering, claim, config, memory, pages, pod

from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.node.cgroups import NoMemoryError
from dracpu_sandbox.resources import CLAIMS, CPU_NODES, EVENTS, PODS, SLICES
from dracpu_sandbox.stories.story import Story


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

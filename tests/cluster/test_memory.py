"""Claims of memory and hugepages on real nodes: with systemd and its cgroup driver, and with cgroupfs."""

from functools import partial
from typing import Any

from harness.cluster import Cluster
from harness.kubectl import condition
from harness.manifests import claim, container, cpus, on_numa_node, pod
from harness.memory import (
    GI,
    MI,
    amount,
    assert_resized,
    command,
    container_file,
    on_one_numa_node,
    pod_limits,
    resize,
    take,
    with_tools,
)
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

DRIVER = "dra.memory"
HOLD_16_MI = " ".join(command("2Mi", 16 * MI, "-hold"))


def offered(node: Node) -> dict[str, str]:
    """Returns the devices of memory and their sizes."""
    slices = [item["spec"] for item in node.slices() if item["spec"]["driver"] == DRIVER]
    devices = [device for found in slices for device in found.get("devices", ())]
    return {device["name"]: device["capacity"]["size"]["value"] for device in devices}


def numa_of(space: Workspace, name: str) -> set[int]:
    """Returns the NUMA nodes of the memory that a claim was allocated."""
    results = space.claim(name)["status"]["allocation"]["devices"]["results"]
    return {int(result["device"].rpartition("numa")[2]) for result in results}


def test_each_node_offers_its_memory_and_its_pages(offering: Cluster) -> None:
    for node in offering.nodes:
        eventually(partial(assert_offers, node), within=60)


def assert_offers(node: Node) -> None:
    sizes = offered(node)
    pages = {name: size for name, size in sizes.items() if name.startswith("hugepages")}
    assert pages == {"hugepages-2mi-numa000": "128Mi", "hugepages-2mi-numa001": "128Mi", "hugepages-1gi-numa001": "1Gi"}
    assert set(sizes) - set(pages) == {"memory-numa000", "memory-numa001"}
    cpu_node = node.cpu_node()
    assert condition(cpu_node, "MemoryReady") == "True"
    shown = {(entry["numaNode"], entry["kind"]): entry for entry in cpu_node["status"]["memory"]}
    assert shown[1, "hugepages_2Mi"] == {
        "numaNode": 1,
        "kind": "hugepages_2Mi",
        "total": "128Mi",
        "reserved": "0",
        "promised": "0",
    }


def test_cpus_memory_and_pages_of_one_claim_lie_on_one_numa_node_and_end_at_the_claim(space: Workspace) -> None:
    wanted = on_one_numa_node(claim("all", cpus(2), amount("memory", "256Mi"), amount("2Mi", "16Mi")))
    space.apply(wanted)
    space.run(with_tools(pod("user", claims={"all": "all"})))
    (numa,) = numa_of(space, "all")
    assert take(space, "user", "2Mi", 16 * MI) == {numa: 16 * MI}
    assert take(space, "user", "2Mi", 18 * MI) == "ENOMEM"
    assert set(take(space, "user", "memory", 200 * MI)) == {numa}
    assert container_file(space, "user", "memory.max") == str(256 * MI)
    assert container_file(space, "user", "cpuset.mems") == str(numa)
    assert pod_limits(space, "user") == limits_of(16 * MI)


def limits_of(small: int, large: int = 0) -> dict[str, str]:
    """The limits of a pod whose spec asks for no pages."""
    return {
        "hugetlb.2MB.max": str(small),
        "hugetlb.2MB.rsvd.max": str(small),
        "hugetlb.1GB.max": str(large),
        "hugetlb.1GB.rsvd.max": str(large),
    }


def test_a_page_of_1_gi_is_claimed_and_used(space: Workspace) -> None:
    space.apply(claim("large", amount("1Gi", "1Gi")))
    space.run(with_tools(pod("user", claims={"large": "large"})))
    assert take(space, "user", "1Gi", GI) == {1: GI}
    assert take(space, "user", "1Gi", 2 * GI) == "ENOMEM"
    assert take(space, "user", "2Mi", 2 * MI) == "ENOMEM"


def test_a_container_without_the_claim_gets_none_of_the_pods_pages(space: Workspace) -> None:
    space.apply(claim("pages", amount("2Mi", "16Mi")))
    space.run(with_tools(pod("user", container("main", ["pages"]), container("beside"), claims={"pages": "pages"})))
    assert take(space, "user", "2Mi", 2 * MI, "beside") == "ENOMEM"
    assert take(space, "user", "2Mi", 16 * MI).keys() <= {0, 1}


def test_a_container_is_killed_at_its_claim_and_nothing_else_is(space: Workspace) -> None:
    selector = on_numa_node(1)
    space.apply(claim("small", amount("memory", "64Mi", selector=selector)))
    greedy = container("main", ["small"], f"sleep 1; exec {' '.join(command('memory', 128 * MI, '-hold'))}")
    space.run(pod("beside"))
    space.apply(with_tools(pod("greedy", greedy, claims={"small": "small"}, restart="Never")))

    def killed() -> Any:
        terminated = space.container_status("greedy")["state"].get("terminated", {})
        assert terminated.get("reason") == "OOMKilled", terminated

    eventually(killed, within=60)
    assert space.container_status("beside")["restartCount"] == 0
    assert condition(space.node.agent_pod(), "Ready") == "True"


def test_a_pod_keeps_its_pages_through_resizes(space: Workspace) -> None:
    space.apply(claim("pages", amount("2Mi", "16Mi")))
    user = container("main", ["pages"], f"exec {HOLD_16_MI}")
    user["resources"]["requests"] = {"cpu": "100m", "memory": "32Mi"}
    user["resources"]["limits"] = {"memory": "256Mi"}
    space.run(with_tools(pod("user", user, claims={"pages": "pages"})))
    held = limits_of(16 * MI)
    eventually(lambda: assert_limits(space, held), within=10)
    for memory in ("300Mi", "200Mi"):
        resize(space, limits={"memory": memory})
        eventually(lambda: assert_resized(space), within=60)
        eventually(lambda: assert_limits(space, held), within=5)
    # Kubernetes 1.37: the kubelet repeats a change of CPUs without success while pages are in use
    resize(space, requests={"cpu": "150m"})
    eventually(lambda: assert_resizing(space), within=30)
    eventually(lambda: assert_limits(space, held), within=5)
    resize(space, requests={"cpu": "100m"})
    eventually(lambda: assert_resized(space), within=60)
    eventually(lambda: assert_limits(space, held), within=5)
    assert space.container_status("user")["restartCount"] == 0


def assert_resizing(space: Workspace) -> None:
    """Asserts that the kubelet has begun to resize the pod."""
    assert [item for item in space.pod("user")["status"]["conditions"] if item["type"] == "PodResizeInProgress"]


def assert_limits(space: Workspace, expected: dict[str, str]) -> None:
    assert pod_limits(space, "user") == expected


def test_a_killed_agent_leaves_claims_as_they_are_and_another_one_continues(space: Workspace) -> None:
    space.apply(claim("both", amount("memory", "128Mi"), amount("2Mi", "8Mi")))
    space.run(with_tools(pod("user", claims={"both": "both"})))
    mems = container_file(space, "user", "cpuset.mems")
    (agent,) = space.node.agent_pod()["status"]["containerStatuses"]
    space.node.kill_container(agent["containerID"])

    def restarted() -> None:
        (again,) = space.node.agent_pod()["status"]["containerStatuses"]
        assert again["restartCount"] > agent["restartCount"]
        space.node.assert_ready()

    eventually(restarted, within=120)
    assert pod_limits(space, "user") == limits_of(8 * MI)
    assert take(space, "user", "2Mi", 8 * MI) != "ENOMEM"
    assert container_file(space, "user", "memory.max") == str(128 * MI)
    assert container_file(space, "user", "cpuset.mems") == mems

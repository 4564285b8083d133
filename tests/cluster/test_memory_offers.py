"""The ways in which claims get memory on real nodes, besides a bound container: preferred NUMA nodes, hugepages as
files, memory beside CPUs in one request, and hugepages that the agent makes.
"""

from collections.abc import Iterator
from functools import partial

import pytest
from harness.cluster import Cluster
from harness.manifests import Object, claim, container, cpus, on_numa_node, pod
from harness.memory import MI, amount, container_file, pod_limits, take, with_tools
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

PATH = "/dev/hugepages"
USER = 1000
PAGES = "hugepages-2mi-numa000"


@pytest.fixture
def first(offering: Cluster, workspace: Workspace) -> Workspace:
    """A namespace whose pods run on the node with systemd, while the nodes offer memory."""
    return workspace


@pytest.fixture
def changing(offering: Cluster) -> Iterator[Cluster]:
    """A cluster whose config the test changes."""
    yield offering
    offering.configure(memory={"enabled": True})


def with_parameters(claim: Object, **of_requests: dict[str, str]) -> Object:
    """Adds parameters for requests of a claim."""
    devices = dict(claim["spec"]["devices"])
    devices["config"] = [
        {
            "requests": [request],
            "opaque": {
                "driver": "dra.memory",
                "parameters": {"apiVersion": "dra.cpu/v1alpha1", "kind": "MemoryClaimParameters", **parameters},
            },
        }
        for request, parameters in of_requests.items()
    ]
    return {**claim, "spec": {"devices": devices}}


def test_a_container_prefers_a_numa_node_and_has_its_hugepages_as_files(first: Workspace) -> None:
    selector = on_numa_node(1)
    wanted = claim("near", amount("memory", "128Mi", "memory", selector), amount("2Mi", "16Mi", "pages", selector))
    first.apply(with_parameters(wanted, memory={"binding": "Preferred"}, pages={"mount": PATH}))
    main = container("main", ["near"])
    main["securityContext"] = {"runAsUser": USER, "runAsGroup": USER}
    first.run(with_tools(pod("user", main, claims={"near": "near"})))

    assert container_file(first, "user", "memory.max") == str(128 * MI)
    assert container_file(first, "user", "cpuset.mems") == ""
    policies = first.execute("user", "main", "cat", "/proc/1/numa_maps").split()
    assert any(policy.startswith("prefer") and policy.endswith(":1") for policy in policies), policies
    # allocating a file takes its pages, of which the file system has as many as the claim
    first.execute("user", "main", "fallocate", "-l", str(16 * MI), f"{PATH}/first")
    assert container_file(first, "user", "hugetlb.2MB.current") == str(16 * MI)
    script = f"fallocate -l {2 * MI} {PATH}/second 2> /dev/null || echo refused"
    assert first.execute("user", "main", "sh", "-c", script).strip() == "refused"


def beside_cpus(node: Node) -> dict[str, dict[str, str]]:
    """Returns the memory that devices of CPUs offer, by device."""
    found = {}
    for name, device in node.devices().items():
        capacity = {kind: entry["value"] for kind, entry in device.get("capacity", {}).items()}
        found[name] = {kind: value for kind, value in capacity.items() if kind not in {"dra.cpu/cpu", "size"}}
    return found


def test_one_request_takes_cpus_and_memory_and_keeps_them_when_memory_gets_devices_of_its_own(
    changing: Cluster, first: Workspace
) -> None:
    node = first.node
    before = offered_memory(node)
    changing.configure(memory={"enabled": True, "publish": "WithCPUs"})
    eventually(lambda: assert_beside_cpus(node))
    both = cpus(2)
    both["exactly"]["capacity"]["requests"] |= {"dra.cpu/memory": "100Mi", "dra.cpu/hugepages_2Mi": "16Mi"}
    first.apply(claim("both", both), claim("alone", cpus(1)))
    first.run(*(with_tools(pod(name, claims={name: name})) for name in ("both", "alone")))
    (device,) = [name for _, name in first.allocated_devices("both")]
    numa = int(device[-1])
    limits = assert_has_all(first, numa)
    assert container_file(first, "alone", "memory.max") == "max"

    changing.edit(memory={"enabled": True})
    eventually(lambda: assert_devices_of_memory(node, numa, before), within=60)
    assert node.cpu_node()["status"]["phase"] == "Draining"
    assert assert_has_all(first, numa) == limits
    first.delete_pods("both")
    eventually(lambda: assert_offered_again(node, before), within=60)
    eventually(changing.assert_settled)


def assert_beside_cpus(node: Node) -> None:
    offered = beside_cpus(node)
    assert set(offered) == {"cpudevnuma000", "cpudevnuma001"}
    assert offered["cpudevnuma001"]["dra.cpu/hugepages_1Gi"] == "1Gi"
    assert offered["cpudevnuma000"].keys() == {"dra.cpu/memory", "dra.cpu/hugepages_2Mi"}


def assert_has_all(space: Workspace, numa: int) -> dict[str, str]:
    """Asserts that the pod `both` has the memory of its request; returns the limits of its pages."""
    assert len(space.cpus("both")) == 2
    assert container_file(space, "both", "memory.max") == str(112 * MI)  # the scheduler rounds up to 16Mi
    assert container_file(space, "both", "cpuset.mems") == str(numa)
    assert take(space, "both", "2Mi", 16 * MI) == {numa: 16 * MI}
    assert take(space, "both", "2Mi", 18 * MI) == "ENOMEM"
    return pod_limits(space, "both")


def offered_memory(node: Node) -> dict[str, str]:
    """Returns the size of each device of memory."""
    return {
        name: device["capacity"]["size"]["value"]
        for name, device in node.devices().items()
        if "size" in device.get("capacity", {})
    }


def assert_devices_of_memory(node: Node, numa: int, before: dict[str, str]) -> None:
    """Asserts that the devices offer what is left beside the pages of the pod `both`."""
    offered = offered_memory(node)
    assert offered.keys() == before.keys()
    assert offered[f"hugepages-2mi-numa{numa:03d}"] == "112Mi"
    assert not any(beside_cpus(node).values())


def assert_offered_again(node: Node, before: dict[str, str]) -> None:
    assert offered_memory(node) == before


def test_hugepages_are_made_and_given_back(changing: Cluster, first: Workspace) -> None:
    node = first.node
    pages = [{"numaNode": 0, "size": "2Mi", "pages": 80}]
    changing.configure(memory={"enabled": True, "provision": pages})
    eventually(partial(assert_pages, node, 80), within=60)
    eventually(lambda: assert_provisioned(node, 80))

    first.apply(claim("all", amount("2Mi", "160Mi", selector=on_numa_node(0))))
    first.run(with_tools(pod("user", claims={"all": "all"})))
    assert take(first, "user", "2Mi", 160 * MI) == {0: 160 * MI}
    changing.configure(memory={"enabled": True})
    assert node_pages(node) == 80, "a claim has all of them"
    first.delete_pods("user")
    eventually(partial(assert_pages, node, 64), within=90)


def assert_provisioned(node: Node, count: int) -> None:
    shown = [entry["provisioned"] for entry in node.cpu_node()["status"]["memory"] if "provisioned" in entry]
    assert shown == [{"wanted": count, "got": count}]


def assert_pages(node: Node, count: int) -> None:
    assert node_pages(node) == count
    assert offered_memory(node)[PAGES] == f"{2 * count}Mi"


def node_pages(node: Node) -> int:
    """Returns how many hugepages of 2 MiB the node has on its first NUMA node."""
    return int(node.sh("cat /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"))

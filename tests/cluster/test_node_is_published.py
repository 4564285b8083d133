"""A node with the agent offers its CPUs: its pod, CpuNode and slices show this, also after changes.

Only real nodes show that the agent reads a real kernel and a real containerd from inside its pod.

The node has CPUs 0-3 on NUMA node 0 and 4-7 on NUMA node 1, two threads per core. Its settings reserve no CPU, so the
agent withholds the lowest core.
"""

from harness.kubectl import condition
from harness.node import CONDITIONS, Node
from harness.waiting import eventually

from dracpu_api.cpuset import CpuSet

WITHHELD = "0-1"


def test_the_agent_is_ready_and_its_node_has_applied_the_settings(node: Node) -> None:
    eventually(node.assert_ready)
    item = node.cpu_node()
    assert {kind: condition(item, kind) for kind in CONDITIONS} == dict.fromkeys(CONDITIONS, "True")
    assert item["status"]["runtime"]["name"] == "containerd"


def test_the_cpu_node_describes_the_machine(node: Node) -> None:
    status = node.cpu_node()["status"]
    assert status["topology"]["smt"] is True
    assert status["topology"]["counts"]["cpus"] == 8
    assert status["cpus"]["reserved"] == WITHHELD

    # other tests may just have released CPUs: the status is updated within seconds
    def nothing_is_exclusive() -> None:
        cpus = node.cpu_node()["status"]["cpus"]
        assert not cpus.get("exclusive")
        assert CpuSet.parse(cpus["shared"]) == CpuSet.parse("2-7")

    eventually(nothing_is_exclusive)


def test_each_numa_node_is_a_device_with_its_unreserved_cpus(node: Node) -> None:
    devices = node.devices()
    offered = {name: device["capacity"]["dra.cpu/cpu"]["value"] for name, device in devices.items()}
    assert offered == {"cpudevnuma000": "2", "cpudevnuma001": "4"}
    for numa, (_, device) in enumerate(sorted(devices.items())):
        assert device["allowMultipleAllocations"] is True
        policy = device["capacity"]["dra.cpu/cpu"]["requestPolicy"]
        assert policy["default"] == "1"
        attributes = device["attributes"]
        assert attributes["resource.kubernetes.io/numaNode"] == {"int": numa}
        assert attributes["dra.cpu/socketID"] == {"int": numa}
        assert attributes["dra.cpu/numCPUs"] == {"int": int(offered[device["name"]])}
        assert attributes["dra.cpu/smtEnabled"] == {"bool": True}
        assert "taints" not in device


def test_the_slices_belong_to_the_node(node: Node) -> None:
    owned_by = node.kubectl.get("node", node.name)
    for item in node.slices():
        assert item["spec"]["driver"] == "dra.cpu"
        assert item["spec"]["pool"]["name"] == node.name
        (owner,) = item["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", owned_by["metadata"]["uid"], True)


def test_deleted_slices_are_published_again(node: Node) -> None:
    before = node.devices()
    assert before
    removed = {item["metadata"]["uid"] for item in node.slices()}
    node.kubectl.delete("resourceslices", "--field-selector", f"spec.nodeName={node.name}")

    def published_anew() -> None:
        assert removed.isdisjoint(item["metadata"]["uid"] for item in node.slices())
        assert node.devices() == before

    eventually(published_anew)

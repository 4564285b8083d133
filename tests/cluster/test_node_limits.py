"""What a node's kubelet and cgroups take from pods is noticed while the agent runs.

Only real nodes show this: the kubelet answers for its CPU manager, and the kernel for the cpusets of cgroups.
"""

from collections.abc import Callable, Iterator

import pytest
from harness.kubectl import condition
from harness.manifests import Object, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet

ALL = CpuSet.parse("2-7")  # the agent withholds the lowest core
WITHIN = 60  # the agent reads the cgroup every five seconds; the kubelet registers the driver some time after its start

KUBELET = "/etc/kubernetes/kubelet.yaml"
STATE = "/var/lib/kubelet/cpu_manager_state"

Restrict = Callable[[str], None]


@pytest.fixture
def restrict(node: Node) -> Iterator[Restrict]:
    """Sets the cpuset of the cgroup of all pods; at the end, it has all CPUs and the node is ready."""

    def restricted(cpus: str) -> None:
        node.sh(f"for pods in /sys/fs/cgroup/kubepods*; do echo {cpus} > $pods/cpuset.cpus; done")

    yield restricted
    restricted("0-7")
    eventually(node.assert_ready, within=WITHIN)


@pytest.fixture
def static_kubelet(node: Node) -> Iterator[Callable[[], None]]:
    """Restarts the kubelet with the static CPU manager; at the end, it runs without and the node is ready."""
    node.sh(f"cp {KUBELET} {KUBELET}.before")

    def restart() -> None:
        node.sh(f'sed -i \'1s/^{{/{{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0",/\' {KUBELET}')
        node.sh(f"grep -q cpuManagerPolicy {KUBELET} && rm -f {STATE}")
        node.restart_kubelet()

    yield restart
    node.sh(f"mv {KUBELET}.before {KUBELET} && rm -f {STATE}")
    node.restart_kubelet()
    eventually(node.assert_ready, within=2 * WITHIN)


def found(node: Node, kind: str) -> Object:
    return next(item for item in node.cpu_node()["status"]["conditions"] if item["type"] == kind)


def capacity(node: Node) -> int:
    return sum(int(device["capacity"]["dra.cpu/cpu"]["value"]) for device in node.devices().values())


def test_cpus_outside_of_the_cpuset_of_all_pods_are_neither_offered_nor_shared(
    restrict: Restrict, workspace: Workspace, node: Node
) -> None:
    workspace.run(pod("shared"))
    before = capacity(node)
    restrict("0-5")

    def follows() -> None:
        assert capacity(node) == before - 2
        assert workspace.cpus("shared") == ALL - CpuSet.parse("6-7")
        assert found(node, "StateHealthy")["reason"] == "CPUsForbidden"

    eventually(follows, within=WITHIN)
    restrict("0-7")

    def is_as_before() -> None:
        assert capacity(node) == before
        assert workspace.cpus("shared") == ALL
        assert found(node, "StateHealthy")["reason"] == "Healthy"

    eventually(is_as_before, within=WITHIN)


def test_a_kubelet_that_becomes_static_closes_its_node(static_kubelet: Callable[[], None], node: Node) -> None:
    assert found(node, "KubeletRegistered")["reason"] == "Registered"
    static_kubelet()

    def is_closed() -> None:
        assert found(node, "KubeletRegistered")["reason"] == "StaticCPUManager"
        assert condition(node.agent_pod(), "Ready") == "False"
        for device in node.devices().values():
            assert "dra.cpu/not-ready" in {taint["key"] for taint in device.get("taints", ())}

    eventually(is_closed, within=2 * WITHIN)

"""Memory is turned off while pods hold claims of it: in the config, and by a release whose agents do not serve memory.

No container loses anything. Only real nodes show this: helm replaces the agents, and without a driver the kubelet
cannot unprepare its claims.
"""

from collections.abc import Iterator
from functools import partial

import pytest
from harness.cluster import Cluster
from harness.helm import Helm
from harness.kubectl import condition
from harness.manifests import claim, cpus, pod
from harness.memory import MI, amount, container_file, pod_limits, take, with_tools
from harness.node import Node
from harness.release import RELEASE
from harness.waiting import eventually
from harness.workspace import Workspace

OFFERED = "memory-numa000"


@pytest.fixture
def helm(offering: Cluster) -> Iterator[Helm]:
    """The release, which is as it was before afterwards."""
    helm = Helm(offering.lab)
    before = helm.revision()
    yield helm
    if helm.revision() != before:
        helm.run("rollback", RELEASE, before, "--no-hooks")
        eventually(offering.assert_ready, within=180)


def test_pods_keep_their_memory_when_it_is_turned_off_and_end_cleanly(
    offering: Cluster, helm: Helm, workspace: Workspace
) -> None:
    node = offering.node
    for name in ("user", "leaving", "first"):
        workspace.apply(claim(name, cpus(1), amount("memory", "64Mi"), amount("2Mi", "8Mi")))
    workspace.run(*(with_tools(pod(name, claims={name: name})) for name in ("user", "leaving", "first")))
    held = limits(workspace)

    offering.edit()  # in the config: the driver remains registered while there are claims
    eventually(partial(assert_offered, node, offered=False))
    eventually(partial(assert_draining, node))
    assert limits(workspace) == held
    workspace.delete_pods("first")
    assert take(workspace, "user", "2Mi", 8 * MI) != "ENOMEM"

    offering.configure(memory={"enabled": True})
    eventually(partial(assert_offered, node, offered=True))
    before, at_once = helm.revision(), {"agent.maxUnavailable": "100%"}
    helm.upgrade("--no-hooks", values={**at_once, "agent.memory": {"enabled": False, "provision": False}})
    eventually(lambda: assert_not_served(node), within=120)
    eventually(partial(assert_offered, node, offered=False))
    assert limits(workspace) == held
    assert take(workspace, "user", "2Mi", 8 * MI) != "ENOMEM"
    assert workspace.container_status("user")["restartCount"] == 0

    # docs: such a pod cannot be deleted until the driver is back
    workspace.kubectl.run("delete", "pod", "leaving", "--namespace", workspace.namespace, "--wait=false")
    workspace.apply(claim("late", amount("memory", "64Mi")), pod("late", claims={"late": "late"}))
    eventually(lambda: assert_waiting(workspace, "late"))
    eventually(lambda: assert_unprepare_fails(workspace, "leaving"))

    helm.run("rollback", RELEASE, before, "--no-hooks")
    eventually(partial(assert_offered, node, offered=True), within=120)
    workspace.kubectl.wait("delete", "pod/leaving", workspace.namespace)
    workspace.kubectl.wait("condition=Ready", "pod/late", workspace.namespace)
    assert limits(workspace) == held
    assert take(workspace, "user", "2Mi", 8 * MI) != "ENOMEM"
    workspace.delete_pods("user", "late")
    eventually(lambda: assert_nothing_promised(node))


def limits(space: Workspace) -> tuple[str, ...]:
    """Returns what the claim of the pod `user` sets in its container's and its own cgroup."""
    files = ("cpuset.cpus", "cpuset.mems", "memory.max", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max")
    return (*(container_file(space, "user", file) for file in files), str(pod_limits(space, "user")))


def assert_offered(node: Node, *, offered: bool) -> None:
    assert (OFFERED in node.devices()) == offered


def assert_draining(node: Node) -> None:
    assert node.cpu_node()["status"]["phase"] == "Draining"


def assert_not_served(node: Node) -> None:
    assert condition(node.agent_pod(), "Ready") == "True"
    (found,) = [entry for entry in node.cpu_node()["status"]["conditions"] if entry["type"] == "MemoryReady"]
    assert (found["status"], found["reason"]) == ("False", "NotServed")
    assert "agent.memory.enabled" in found["message"]


def assert_waiting(space: Workspace, name: str) -> None:
    (scheduled,) = [entry for entry in space.pod(name)["status"]["conditions"] if entry["type"] == "PodScheduled"]
    assert scheduled["status"] == "False"
    assert "dra.memory" in scheduled["message"]


def assert_unprepare_fails(space: Workspace, name: str) -> None:
    assert "terminated" in space.container_status(name)["state"]
    logged = space.node.sh(f"grep -F {space.pod(name)['metadata']['uid']} /var/log/kubelet.log")
    assert "DRA driver dra.memory is not registered" in logged


def assert_nothing_promised(node: Node) -> None:
    assert {entry["promised"] for entry in node.cpu_node()["status"]["memory"]} == {"0"}

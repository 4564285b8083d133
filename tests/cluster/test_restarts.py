"""The agent, the runtime and the kubelet may end at any time: claims keep their CPUs, and the pool is right again."""

from dataclasses import dataclass

import pytest
from harness.cluster import Cluster
from harness.kubectl import condition
from harness.manifests import claim, cpus, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet

ALL = CpuSet.parse("2-7")


@dataclass(frozen=True, slots=True)
class Held:
    """A running claim and a pod without one, as they were before something ended."""

    cpus: CpuSet
    exclusive: str  # the container with the claim
    beside: str  # the container without


@pytest.fixture
def held(workspace: Workspace) -> Held:
    """A claim for two CPUs that runs beside a pod without a claim."""
    workspace.apply(claim("two", cpus(2)))
    workspace.run(pod("exclusive", claims={"two": "two"}), pod("beside"))
    made = Held(workspace.cpus("exclusive"), workspace.container_id("exclusive"), workspace.container_id("beside"))
    assert len(made.cpus) == 2
    assert workspace.cpus("beside") == ALL - made.cpus
    return made


def nothing_moved(node: Node, held: Held) -> None:
    """Both containers run where they ran. Asks the kernel, for nobody else may be there to answer."""
    assert node.cgroup_cpus(held.exclusive) == (held.cpus, held.cpus)
    assert node.cgroup_cpus(held.beside) == (ALL - held.cpus, ALL - held.cpus)


def claims_come_and_go(cluster: Cluster, workspace: Workspace, held: Held) -> None:
    """The node is Ready, the old claim is where it was, a new one gets other CPUs, and in the end all is shared."""
    eventually(cluster.assert_ready, within=120)
    nothing_moved(cluster.node, held)
    assert sorted(cluster.devices()) == ["cpudevnuma000", "cpudevnuma001"]

    workspace.apply(claim("next", cpus(2)))
    workspace.run(pod("newcomer", claims={"next": "next"}))
    new = workspace.cpus("newcomer")
    assert len(new) == 2
    assert new <= ALL - held.cpus
    assert workspace.cpus("exclusive") == held.cpus
    assert workspace.cpus("beside") == ALL - held.cpus - new

    workspace.delete_pods("exclusive", "newcomer")

    def given_back() -> None:
        assert workspace.cpus("beside") == ALL

    eventually(given_back, within=10)


def test_claims_survive_a_killed_agent(cluster: Cluster, workspace: Workspace, held: Held) -> None:
    (before,) = cluster.agent_pod()["status"]["containerStatuses"]
    cluster.node.kill_container(before["containerID"])
    nothing_moved(cluster.node, held)

    def restarted() -> None:
        (now,) = cluster.agent_pod()["status"]["containerStatuses"]
        assert now["restartCount"] == before["restartCount"] + 1
        assert now["ready"]

    eventually(restarted, within=180)  # the kubelet waits longer each time
    claims_come_and_go(cluster, workspace, held)


def test_a_pod_deleted_while_the_agent_is_away_gives_its_cpus_back(
    cluster: Cluster, workspace: Workspace, held: Held
) -> None:
    (before,) = cluster.agent_pod()["status"]["containerStatuses"]
    cluster.node.kill_container(before["containerID"])
    workspace.delete_pods("exclusive")

    def given_back() -> None:
        assert workspace.cpus("beside") == ALL

    eventually(given_back, within=180)


def test_claims_survive_a_restart_of_the_runtime(cluster: Cluster, workspace: Workspace, held: Held) -> None:
    cluster.node.restart_containerd()
    nothing_moved(cluster.node, held)
    claims_come_and_go(cluster, workspace, held)


def test_claims_survive_a_restart_of_the_kubelet(cluster: Cluster, workspace: Workspace, held: Held) -> None:
    slices = {item["metadata"]["uid"] for item in cluster.slices()}
    cluster.node.restart_kubelet()
    nothing_moved(cluster.node, held)

    # a starting kubelet deletes the slices of its node
    def published_anew() -> None:
        now = {item["metadata"]["uid"] for item in cluster.slices()}
        assert now
        assert slices.isdisjoint(now)
        assert condition(cluster.kubectl.get("node", cluster.node.name), "Ready") == "True"

    eventually(published_anew, within=120)
    claims_come_and_go(cluster, workspace, held)

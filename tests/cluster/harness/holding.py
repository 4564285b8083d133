"""A claim that pods hold while a component stops or restarts, and the assertions that follow."""

from dataclasses import dataclass, replace
from typing import Final

from dracpu_api.cpuset import CpuSet
from harness.manifests import claim, cpus, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

ALL: Final = CpuSet.parse("2-7")  # the agent withholds the lowest core; without claims all other CPUs are shared


@dataclass(frozen=True, slots=True)
class Held:
    """The pod `exclusive`, which has a claim, and the pod `beside`, which has none, as they were before a restart."""

    workspace: Workspace
    cpus: CpuSet
    exclusive: str  # id of the container with the claim
    beside: str  # id of the container without a claim

    @property
    def shared(self) -> CpuSet:
        """The CPUs that the container without a claim runs on."""
        return ALL - self.cpus

    def renewed(self) -> "Held":
        """Returns a copy with the ids of the containers that run now, after they were started again."""
        exclusive, beside = map(self.workspace.container_id, ("exclusive", "beside"))
        return replace(self, exclusive=exclusive, beside=beside)


def hold(workspace: Workspace) -> Held:
    """Runs a pod with a claim for two CPUs and a pod without a claim."""
    workspace.apply(claim("two", cpus(2)))
    workspace.run(pod("exclusive", claims={"two": "two"}), pod("beside"))
    cpus_of_claim = workspace.cpus("exclusive")
    held = Held(workspace, cpus_of_claim, workspace.container_id("exclusive"), workspace.container_id("beside"))
    assert len(held.cpus) == 2
    assert workspace.cpus("beside") == held.shared
    return held


def nothing_moved(held: Held) -> None:
    """Asserts that both containers run on the CPUs that they had. Reads cgroups, since the API server may be down."""
    node = held.workspace.node
    assert node.cgroup_cpus(held.exclusive) == (held.cpus, held.cpus)
    assert node.cgroup_cpus(held.beside) == (held.shared, held.shared)


def claims_come_and_go(held: Held, *, within: float = 10) -> None:
    """Asserts that the node still works: the old claim keeps its CPUs, a new claim gets others, and both are released.

    At most `within` seconds after both pods are gone, all CPUs that are not withheld are shared.
    """
    workspace = held.workspace
    eventually(workspace.node.assert_ready, within=120)
    nothing_moved(held)
    assert sorted(workspace.node.devices()) == ["cpudevnuma000", "cpudevnuma001"]

    workspace.apply(claim("next", cpus(2)))
    workspace.run(pod("newcomer", claims={"next": "next"}))
    new = workspace.cpus("newcomer")
    assert len(new) == 2
    assert new <= held.shared
    assert workspace.cpus("exclusive") == held.cpus
    assert workspace.cpus("beside") == held.shared - new

    workspace.delete_pods("exclusive", "newcomer")
    eventually(lambda: given_back(workspace), within)


def given_back(workspace: Workspace) -> None:
    """Asserts that the pod without a claim runs on all CPUs that are not withheld."""
    assert workspace.cpus("beside") == ALL


def agent_restarted(node: Node, times: int) -> None:
    """Asserts that the agent's container was restarted this many times and is ready."""
    (status,) = node.agent_pod()["status"]["containerStatuses"]
    assert status["restartCount"] == times
    assert status["ready"]

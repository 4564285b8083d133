"""A claim that is held while something ends, and what has to be true of it then."""

from dataclasses import dataclass, replace
from typing import Final

from dracpu_api.cpuset import CpuSet
from harness.manifests import claim, cpus, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

ALL: Final = CpuSet.parse("2-7")  # the agent withholds the lowest core; without claims the rest is shared


@dataclass(frozen=True, slots=True)
class Held:
    """The pod `exclusive` with a claim and the pod `beside` without one, as they were before something ended."""

    workspace: Workspace
    cpus: CpuSet
    exclusive: str  # the container with the claim
    beside: str  # the container without

    @property
    def shared(self) -> CpuSet:
        """Where the container without a claim runs."""
        return ALL - self.cpus

    def renewed(self) -> "Held":
        """The same with the containers that run now, where they had to start again."""
        exclusive, beside = map(self.workspace.container_id, ("exclusive", "beside"))
        return replace(self, exclusive=exclusive, beside=beside)


def hold(workspace: Workspace) -> Held:
    """Lets a claim for two CPUs run beside a pod without a claim."""
    workspace.apply(claim("two", cpus(2)))
    workspace.run(pod("exclusive", claims={"two": "two"}), pod("beside"))
    held = workspace.cpus("exclusive")
    made = Held(workspace, held, workspace.container_id("exclusive"), workspace.container_id("beside"))
    assert len(made.cpus) == 2
    assert workspace.cpus("beside") == made.shared
    return made


def nothing_moved(held: Held) -> None:
    """Both containers run where they ran. Asks the kernel, for nobody else may be there to answer."""
    node = held.workspace.node
    assert node.cgroup_cpus(held.exclusive) == (held.cpus, held.cpus)
    assert node.cgroup_cpus(held.beside) == (held.shared, held.shared)


def claims_come_and_go(held: Held, *, within: float = 10) -> None:
    """The node is Ready, the old claim is where it was, a new one gets other CPUs, and `within` seconds of their end
    all is shared."""
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
    """No claim is left, and the pod beside it has all CPUs that are not withheld."""
    assert workspace.cpus("beside") == ALL


def agent_restarted(node: Node, times: int) -> None:
    """The agent's container has been started again so many times, and serves."""
    (now,) = node.agent_pod()["status"]["containerStatuses"]
    assert now["restartCount"] == times
    assert now["ready"]

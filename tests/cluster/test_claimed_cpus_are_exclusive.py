"""A claim's CPUs belong to its containers alone, from their first instruction until the pod is gone."""

from harness.manifests import claim, cpus, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet

CORES = [CpuSet.parse(threads) for threads in ("0-1", "2-3", "4-5", "6-7")]
ALL = CpuSet.parse("2-7")  # the agent withholds the lowest core; without claims the rest is shared


def test_a_claim_for_two_cpus_gets_exactly_both_threads_of_a_core(workspace: Workspace) -> None:
    workspace.apply(claim("two", cpus(2)))
    workspace.run(pod("exclusive", claims={"two": "two"}))

    got = workspace.cpus("exclusive")
    assert got in CORES
    assert workspace.cpus_at_start("exclusive") == got
    assert workspace.published_cpus("two") == got
    uid = workspace.claim("two")["metadata"]["uid"]
    assert workspace.environment("exclusive")[f"DRA_CPUSET_{uid}"] == str(got)


def test_containers_without_a_claim_stay_off_claimed_cpus_and_get_them_back(workspace: Workspace) -> None:
    workspace.run(pod("before"))
    assert workspace.cpus("before") == ALL

    workspace.apply(claim("two", cpus(2)))
    workspace.run(pod("exclusive", claims={"two": "two"}))
    claimed = workspace.cpus("exclusive")
    assert len(claimed) == 2
    assert workspace.cpus("before") == ALL - claimed  # moved before the claim's container began

    workspace.run(pod("after"))
    assert workspace.cpus_at_start("after") == ALL - claimed
    assert workspace.cpus("after") == ALL - claimed

    workspace.delete_pods("exclusive")

    def given_back() -> None:
        assert workspace.cpus("before") == workspace.cpus("after") == ALL

    eventually(given_back, within=10)


def test_the_agent_itself_stays_off_claimed_cpus(workspace: Workspace, node: Node) -> None:
    workspace.apply(claim("four", cpus(4)))
    workspace.run(pod("exclusive", claims={"four": "four"}))
    (agent,) = node.agent_pod()["status"]["containerStatuses"]
    _, agents = node.cgroup_cpus(agent["containerID"])
    assert agents == ALL - workspace.cpus("exclusive")


def test_a_claim_that_cannot_fit_waits_and_gets_the_cpus_that_are_given_back(workspace: Workspace) -> None:
    workspace.apply(claim("first", cpus(4)), claim("second", cpus(4)))
    workspace.run(pod("holder", claims={"first": "first"}))
    workspace.apply(pod("waiting", claims={"second": "second"}))
    workspace.kubectl.wait("condition=PodScheduled=false", "pod/waiting", workspace.namespace)

    held = workspace.cpus("holder")
    workspace.delete_pods("holder")
    workspace.kubectl.wait("condition=Ready", "pod/waiting", workspace.namespace, timeout=120)
    assert workspace.cpus("waiting") == held  # the only four of one NUMA node that are not withheld

"""A claim's CPUs are used by its containers only, from their first instruction until the pod is deleted.

Only real nodes show this, because it is read from processes and cgroups. The sandbox's story exhausted shows on the
real control plane that a claim which does not fit waits, and gets CPUs when they become free.
"""

from harness.manifests import claim, cpus, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet

CORES = [CpuSet.parse(threads) for threads in ("0-1", "2-3", "4-5", "6-7")]
ALL = CpuSet.parse("2-7")  # the agent withholds the lowest core; without claims, all other CPUs are shared


def test_a_claim_gets_an_exclusive_core_and_all_other_containers_leave_it(workspace: Workspace, node: Node) -> None:
    workspace.run(pod("before"))
    assert workspace.cpus("before") == ALL

    workspace.apply(claim("two", cpus(2)))
    workspace.run(pod("exclusive", claims={"two": "two"}))
    claimed = workspace.cpus("exclusive")
    assert claimed in CORES
    assert workspace.cpus_at_start("exclusive") == claimed
    assert workspace.published_cpus("two") == claimed
    uid = workspace.claim("two")["metadata"]["uid"]
    assert workspace.environment("exclusive")[f"DRA_CPUSET_{uid}"] == str(claimed)
    assert workspace.cpus("before") == ALL - claimed  # moved before the claim's container started
    (agent,) = node.agent_pod()["status"]["containerStatuses"]
    assert node.cgroup_cpus(agent["containerID"])[1] == ALL - claimed

    workspace.run(pod("after"))
    assert workspace.cpus_at_start("after") == ALL - claimed
    assert workspace.cpus("after") == ALL - claimed

    workspace.delete_pods("exclusive")

    def given_back() -> None:
        assert workspace.cpus("before") == workspace.cpus("after") == ALL

    eventually(given_back, within=10)

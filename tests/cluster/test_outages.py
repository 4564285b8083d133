"""While the API server or the operator is unavailable, the nodes continue; afterwards, all parts recover.

Only real nodes show this: kubelet and containerd restart containers while no API server answers, and a kubelet restarts
a killed operator.
"""

import json
import shlex
from collections.abc import Iterator

import pytest
from harness.cluster import Cluster
from harness.driver_call import prepare
from harness.holding import Held, agent_restarted, claims_come_and_go, hold
from harness.manifests import Object, pod
from harness.node import MANIFESTS, Node
from harness.waiting import eventually
from harness.watching import recorded
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet


@pytest.fixture
def held(workspace: Workspace) -> Held:
    """A claim for two CPUs that runs beside a pod without a claim."""
    return hold(workspace)


@pytest.fixture
def manifest(node: Node, workspace: Workspace) -> Iterator[str]:
    """The manifest of a static pod, which the kubelet does not have yet."""
    made = pod("static")
    made["metadata"]["namespace"] = workspace.namespace
    yield json.dumps(made)
    node.sh(f"rm -f {MANIFESTS}/static.json")


def test_claims_and_containers_restart_without_an_api_server(
    cluster: Cluster, node: Node, workspace: Workspace, held: Held, manifest: str
) -> None:
    def started_on(pod: str, instance: int) -> CpuSet:
        return eventually(lambda: workspace.cpus_at_first(pod, instance))

    claim = workspace.claim("two")
    answer = prepare(node, claim)
    (agent,) = node.agent_pod()["status"]["containerStatuses"]
    (operator,) = cluster.operator_pod()["status"]["containerStatuses"]

    with cluster.without_api_server():
        assert prepare(node, claim) == answer

        # a container with a claim restarts, and a pod without a claim starts
        node.kill_container(held.exclusive)
        node.sh(f"echo {shlex.quote(manifest)} > {MANIFESTS}/static.json")
        assert started_on("exclusive", 1) == held.cpus
        assert started_on(f"static-{node.name}", 0) == held.shared

        # the agent restarts, and cannot read from the API server which CPUs are allocated
        node.kill_container(agent["containerID"])
        assert eventually(lambda: prepare(node, claim), within=90) == answer
        node.kill_container(node.running_container("main", "exclusive"))
        node.kill_container(held.beside)
        assert started_on("exclusive", 2) == held.cpus
        assert started_on("beside", 1) == held.shared

    def converged() -> None:
        cluster.assert_ready()
        agent_restarted(node, agent["restartCount"] + 1)
        for name in ("exclusive", "beside", f"static-{node.name}"):
            assert workspace.container_status(name)["ready"]

    eventually(converged, within=120)
    # it could not renew the Lease, by which it leads; the process that follows waits for the API server
    assert cluster.operator_pod()["status"]["containerStatuses"][0]["restartCount"] == operator["restartCount"] + 1
    claims_come_and_go(held.renewed())


def test_a_restarted_operator_continues_its_rollout(editable: Cluster) -> None:
    (before,) = editable.operator_pod()["status"]["containerStatuses"]
    former = {node.name: revision_given(node.cpu_node()) for node in editable.nodes}

    def changed() -> list[str]:
        return [node.name for node in editable.nodes if revision_given(node.cpu_node()) != former[node.name]]

    def one_changed() -> str:
        names = changed()
        assert len(names) == 1, f"the nodes {names} have other settings"
        return names[0]

    with recorded(editable.kubectl, "cpunodes") as recording:
        editable.edit(groupBy="l3cache", rollout={"maxUnavailable": 1, "settleSeconds": 5})
        first = eventually(one_changed)
        editable.kill_operator()
        assert changed() == [first]

        def finished() -> None:
            (now,) = editable.operator_pod()["status"]["containerStatuses"]
            assert now["restartCount"] == before["restartCount"] + 1
            editable.assert_ready()

        eventually(finished, within=180)
        assert sorted(changed()) == sorted(former)
        for state in recording.states():
            assert sum(map(is_unavailable, state.values())) <= 1
    for node in editable.nodes:
        caches = node.cpu_node()["status"]["topology"]["counts"]["l3Groups"]
        names = list(node.devices())
        assert len(names) == caches == 2, names  # the emulated machine has an L3 cache for each socket
        assert all(name.startswith("cpudevl3cache") for name in names), names


def revision_given(cpu_node: Object) -> str:
    """Returns the revision that the operator has assigned to a node."""
    return str(cpu_node["spec"]["revision"])


def is_unavailable(cpu_node: Object) -> bool:
    """Returns whether a node is changing or has failed, as maxUnavailable counts it."""
    status = cpu_node["status"]
    return status["phase"] in {"Settling", "Failed"} or status["appliedRevision"] != revision_given(cpu_node)

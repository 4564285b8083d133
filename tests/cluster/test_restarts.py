"""Agent, runtime, kubelet and node may restart at any time: claims keep their CPUs, and the pool becomes correct.

Only real nodes show this: the kubelet restarts the agent's container, containers outlive containerd and the kubelet,
and the kernel boots again.
"""

import pytest
from harness.holding import ALL, Held, agent_restarted, claims_come_and_go, given_back, hold, nothing_moved
from harness.kubectl import condition
from harness.manifests import Object
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace


@pytest.fixture
def held(workspace: Workspace) -> Held:
    """A claim for two CPUs that runs beside a pod without a claim."""
    return hold(workspace)


def test_claims_survive_a_killed_agent(node: Node, held: Held) -> None:
    (before,) = node.agent_pod()["status"]["containerStatuses"]
    node.kill_container(before["containerID"])
    nothing_moved(held)

    # the kubelet waits longer each time
    eventually(lambda: agent_restarted(node, before["restartCount"] + 1), within=180)
    claims_come_and_go(held)


def test_the_cpus_of_a_pod_deleted_without_an_agent_are_released_later(
    node: Node, workspace: Workspace, held: Held
) -> None:
    (before,) = node.agent_pod()["status"]["containerStatuses"]
    node.kill_container(before["containerID"])
    workspace.delete_pods("exclusive")
    eventually(lambda: given_back(workspace), within=180)


def test_claims_survive_a_restart_of_the_runtime(node: Node, held: Held) -> None:
    node.restart_containerd()
    nothing_moved(held)
    claims_come_and_go(held)


def test_claims_survive_a_restart_of_the_kubelet(node: Node, held: Held) -> None:
    slices = {item["metadata"]["uid"] for item in node.slices()}
    node.restart_kubelet()
    nothing_moved(held)

    # a starting kubelet deletes the slices of its node
    def published_anew() -> None:
        now = {item["metadata"]["uid"] for item in node.slices()}
        assert now
        assert slices.isdisjoint(now)
        assert condition(node.kubectl.get("node", node.name), "Ready") == "True"

    eventually(published_anew, within=120)
    claims_come_and_go(held)


def test_an_agent_that_follows_a_newer_one_keeps_claims_and_fields_that_it_does_not_know(
    node: Node, workspace: Workspace, held: Held
) -> None:
    (before,) = node.agent_pod()["status"]["containerStatuses"]
    uid = workspace.claim("two")["metadata"]["uid"]

    def change(body: Object) -> None:
        body["futureField"] = body["spec"]["settings"]["futureSetting"] = {"on": True}
        (entry,) = [entry for entry in body["claims"] if entry["uid"] == uid]
        entry["grants"][0]["kind"] = "future"

    node.replace_agent_by_older(change)

    def frozen() -> None:
        agent_restarted(node, before["restartCount"] + 1)
        (health,) = [c for c in node.cpu_node()["status"]["conditions"] if c["type"] == "StateHealthy"]
        assert health["reason"] == "ClaimsFrozen"
        assert f"{workspace.namespace}/two (CPUs {held.cpus})" in health["message"]

    eventually(frozen, within=180)
    nothing_moved(held)

    node.kill_container(held.exclusive)
    assert eventually(lambda: workspace.cpus_at_first("exclusive", 1), within=120) == held.cpus
    eventually(lambda: workspace.cpus("exclusive"))
    claims_come_and_go(held.renewed())

    assert node.checkpoint()["futureField"] == {"on": True}
    assert uid not in [entry["uid"] for entry in node.checkpoint()["claims"]]
    eventually(lambda: healthy(node))


def healthy(node: Node) -> None:
    (health,) = [c for c in node.cpu_node()["status"]["conditions"] if c["type"] == "StateHealthy"]
    assert (health["status"], health["reason"]) == ("True", "Healthy")


@pytest.mark.parametrize("what", ["/var/run/cdi/dra.k8s.io-cpu_*.json", "/var/run/cdi"], ids=["files", "directory"])
def test_a_container_starts_again_after_the_cdi_files_were_deleted(
    node: Node, workspace: Workspace, held: Held, what: str
) -> None:
    node.sh(f"rm -r {what}")
    node.kill_container(held.exclusive)
    assert eventually(lambda: workspace.cpus_at_first("exclusive", 1), within=180) == held.cpus
    eventually(lambda: workspace.cpus("exclusive"))
    claims_come_and_go(held.renewed())


def test_pods_restart_on_their_cpus_after_a_reboot_of_the_node(node: Node, workspace: Workspace, held: Held) -> None:
    node.restart()

    def came_back() -> None:
        for name in ("exclusive", "beside"):
            status = workspace.container_status(name)
            assert status["restartCount"] >= 1
            assert status["ready"]
        assert workspace.cpus("exclusive") == held.cpus
        assert workspace.cpus("beside") == ALL - held.cpus  # it may have started before the agent

    eventually(came_back, within=240)
    assert workspace.cpus_at_start("exclusive") == held.cpus
    # a power loss may leave the runtime with a container of the claim that was created but, according to its disk, not
    # started: the claim remains in use until the kubelet removes that container, which it does once a minute
    claims_come_and_go(held.renewed(), within=150)

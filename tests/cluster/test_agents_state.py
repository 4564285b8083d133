"""The operator reports whether each node's agent is ready, as the agent's pod shows it.

Only real nodes show this: the words are those of the kubelet, and the DaemonSet replaces one agent after the other.
"""

from collections.abc import Iterator

import pytest
from harness.cluster import Cluster
from harness.holding import claims_come_and_go, hold, nothing_moved
from harness.kubectl import condition
from harness.manifests import Object
from harness.node import Node
from harness.release import IMAGES, NAMESPACE, TAG
from harness.waiting import eventually
from harness.workspace import Workspace

MISSING = f"{IMAGES['agent']}:missing"


@pytest.fixture
def agents(cluster: Cluster) -> Iterator[Cluster]:
    """The agents, which run their image again afterwards."""
    yield cluster
    set_image(cluster, f"{IMAGES['agent']}:{TAG}")
    cluster.kubectl.run("rollout", "status", "daemonset/dracpu-agent", "--namespace", NAMESPACE, timeout=180)
    eventually(cluster.assert_ready, within=180)


def test_an_image_that_does_not_exist_is_reported_for_the_node_and_stops_no_rollout(
    agents: Cluster, workspace: Workspace
) -> None:
    held = hold(workspace)
    set_image(agents, MISSING)

    def is_reported() -> Node:
        found = [node for node in agents.nodes if state(node).get("ready") is False]
        assert len(found) == 1
        return found[0]

    down = eventually(is_reported, within=120)
    (working,) = (node for node in agents.nodes if node != down)
    assert MISSING in state(down)["message"]
    assert "Image" in state(down)["reason"]
    assert state(working)["ready"] is True

    def is_degraded() -> None:
        degraded = find(agents.config(), "Degraded")
        assert degraded["reason"] == "AgentsNotReady"
        assert f"{down.name}: {state(down)['reason']}" in degraded["message"]

    eventually(is_degraded, within=90)
    agents.edit(allocation={"strategy": "distributed"})
    eventually(lambda: was_changed(working), within=60)
    agents.kubectl.run("wait", "--for=condition=Progressing=False", "cpucfg/default", "--timeout=60s", timeout=90)
    assert find(agents.config(), "Progressing")["reason"] == "Incomplete"
    nothing_moved(held)

    set_image(agents, f"{IMAGES['agent']}:{TAG}")
    eventually(lambda: was_changed(down), within=180)
    eventually(lambda: is_ready_again(down), within=90)
    assert condition(agents.config(), "Degraded") == "False"
    claims_come_and_go(held)


def set_image(cluster: Cluster, image: str) -> None:
    words = ("set", "image", "daemonset/dracpu-agent", f"agent={image}", "--namespace", NAMESPACE)
    cluster.kubectl.run(*words)


def state(node: Node) -> Object:
    """Returns status.agent of the node's CpuNode."""
    return dict(node.cpu_node().get("status", {}).get("agent", {}))


def find(config: Object, kind: str) -> Object:
    (found,) = (found for found in config["status"]["conditions"] if found["type"] == kind)
    return dict(found)


def was_changed(node: Node) -> None:
    cpu_node = node.cpu_node()
    assert cpu_node["spec"]["settings"]["allocation"]["strategy"] == "distributed"
    assert cpu_node["status"].get("appliedRevision") == cpu_node["spec"]["revision"]


def is_ready_again(node: Node) -> None:
    assert state(node).get("ready") is True

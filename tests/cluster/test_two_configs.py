"""Two nodes, and a config for each: a node follows its label from one to the other, and settings that a node cannot
apply stop the rollout before they reach the next one.

Whatever becomes of a node's config, the containers that run on it stay where they are.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from harness.cluster import Cluster
from harness.holding import ALL, hold, nothing_moved
from harness.kubectl import condition
from harness.manifests import Object, claim, cpus, pod
from harness.node import Node
from harness.release import CONFIG, QUICK
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet

POOL: Final = "example.com/pool"  # the label of nodes that the configs go by
ONE_BY_ONE: Final = {"maxUnavailable": 1, "settleSeconds": 1}


@pytest.fixture
def pools(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a config for each of two pools. It stands first: it is undone after the workspace."""
    kubectl = cluster.kubectl
    kubectl.apply(config_of_pool("web", groupBy="socket"), config_of_pool("databases", mode="individual"))
    yield cluster
    kubectl.run("label", "nodes", "--all", f"{POOL}-")
    kubectl.delete("cpudriverconfigs", "web", "databases")
    eventually(cluster.assert_ready, within=120)


def config_of_pool(pool: str, **spec: Any) -> Object:
    """A config for the nodes with a label, which wins over the default config."""
    return {
        "apiVersion": "dra.cpu/v1alpha1",
        "kind": "CpuDriverConfig",
        "metadata": {"name": pool},
        "spec": {**QUICK, "nodeSelector": {"matchLabels": {POOL: pool}}, "priority": 10, **spec},
    }


def put_into_pool(node: Node, pool: str) -> None:
    node.kubectl.run("label", "node", node.name, f"{POOL}={pool}", "--overwrite")


def individual(cpus: CpuSet) -> list[str]:
    """The devices of these CPUs."""
    return [f"cpudev{cpu:03d}" for cpu in cpus]


def published(node: Node) -> list[str]:
    """The devices of a node that are open to new claims."""
    return sorted(name for name, device in node.devices().items() if not device.get("taints"))


def test_each_node_publishes_as_the_config_of_its_label_says(pools: Cluster) -> None:
    first, second = pools.nodes
    put_into_pool(first, "web")
    put_into_pool(second, "databases")

    def each_has_its_own() -> None:
        assert (pools.followers("web"), pools.followers("databases"), pools.followers()) == ([first], [second], [])
        pools.assert_settled("web")
        pools.assert_settled("databases")
        assert published(first) == ["cpudevsocket000", "cpudevsocket001"]
        assert published(second) == individual(ALL)

    eventually(each_has_its_own, within=60)

    def shown() -> None:
        configs, nodes = pools.kubectl.tables("cpucfg,cpun")
        columns = {row["NAME"].rpartition("/")[2]: (row["MODE"], row["NODES"], row["APPLIED"]) for row in configs}
        assert columns == {
            "databases": ("individual", "1", "1"),
            CONFIG: ("grouped", "0", "0"),
            "web": ("grouped", "1", "1"),
        }
        assert [(row["CONFIG"], row["MODE"]) for row in nodes] == [("web", "grouped"), ("databases", "individual")]

    eventually(shown)


def test_a_node_whose_label_changes_moves_to_the_other_config_and_a_held_claim_stays(
    pools: Cluster, workspace: Workspace
) -> None:
    held, (moved, other) = hold(workspace), pools.nodes
    left = other.cpu_node()["spec"]

    put_into_pool(moved, "databases")

    def individual_but_for_the_claim() -> None:
        assert pools.followers("databases") == [moved]
        assert published(moved) == individual(ALL - held.cpus)

    eventually(individual_but_for_the_claim, within=60)
    nothing_moved(held)

    put_into_pool(moved, "web")

    def by_socket_but_for_the_claim() -> None:
        assert pools.followers("web") == [moved]
        devices = moved.devices()
        assert all(name.startswith("cpudevsocket") for name in devices)
        offered = sum(int(device["capacity"]["dra.cpu/cpu"]["value"]) for device in devices.values())
        assert offered == len(ALL - held.cpus)

    eventually(by_socket_but_for_the_claim, within=60)
    nothing_moved(held)
    assert pools.config("databases")["status"]["nodes"]["selected"] == 0
    assert other.cpu_node()["spec"] == left

    workspace.delete_pods("exclusive")

    def all_come_back() -> None:
        pools.assert_settled("web")
        assert published(moved) == ["cpudevsocket000", "cpudevsocket001"]

    eventually(all_come_back, within=60)


def test_a_broken_config_stops_at_one_node_changes_nothing_and_goes_on_when_it_is_put_right(
    editable: Cluster, workspace: Workspace
) -> None:
    held, (broken, spared) = hold(workspace), editable.nodes
    former, devices = [node.cpu_node() for node in editable.nodes], broken.devices()

    editable.edit(mode="individual", reservedCPUs="0-1,99", rollout=ONE_BY_ONE)

    def stopped() -> None:
        config = editable.config()
        assert config["status"]["nodes"] == {"selected": 2, "applied": 0, "progressing": 1, "failed": 1}
        assert said(config, "Progressing").startswith(
            "False Stopped: 0 of 2 nodes applied these settings; 1 node failed"
        )
        why = f"{broken.name}: reservedCPUs names CPU 99, which the node does not have"
        assert said(config, "Degraded").startswith("True NodesFailed: 1 node failed")
        assert why in said(config, "Degraded")

    eventually(stopped, within=60)
    configs, nodes = editable.kubectl.tables("cpucfg,cpun")
    assert [row["FAILED"] for row in configs] == ["1"]
    assert [row["PHASE"] for row in nodes] == ["Failed", "Ready"]
    assert "NodesFailed" in events_about(editable, CONFIG)

    # the node stays on its last good settings, and works by them
    assert condition(broken.cpu_node(), "ConfigApplied") == "False"
    assert broken.cpu_node()["status"]["appliedRevision"] == former[0]["status"]["appliedRevision"]
    assert broken.devices() == devices
    nothing_moved(held)
    workspace.apply(claim("next", cpus(2)))
    workspace.run(pod("newcomer", claims={"next": "next"}))
    assert workspace.cpus("newcomer") <= held.shared
    workspace.delete_pods("newcomer")
    eventually(lambda: nothing_moved(held), within=10)
    assert spared.cpu_node()["spec"] == former[1]["spec"]  # in all that time

    editable.edit(mode="individual", reservedCPUs="0-1", rollout=ONE_BY_ONE)

    def applied() -> None:
        config = editable.config()
        assert config["status"]["nodes"] == {"selected": 2, "applied": 2, "progressing": 0, "failed": 0}
        assert said(config, "Progressing").startswith("False Complete")
        assert said(config, "Degraded").startswith("False NoFailures")
        assert published(spared) == individual(ALL)
        assert published(broken) == individual(ALL - held.cpus)

    eventually(applied, within=60)
    nothing_moved(held)


def said(config: Object, kind: str) -> str:
    """A condition in one line."""
    (one,) = (one for one in config["status"]["conditions"] if one["type"] == kind)
    return f"{one['status']} {one['reason']}: {one['message']}"


def events_about(cluster: Cluster, config: str) -> list[str]:
    """The reasons of the Events that `kubectl describe` shows for a config."""
    uid = cluster.config(config)["metadata"]["uid"]
    events = cluster.kubectl.list("events", "default", "--field-selector", f"involvedObject.uid={uid}")
    return [event["reason"] for event in events]

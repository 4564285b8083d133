"""A claim may be allocated long before it is prepared, for a pod's volumes are mounted first. When the node's devices
change in between, the pod still starts, and nobody else was given its CPUs meanwhile."""

from dataclasses import dataclass
from typing import Any

import pytest
from harness.cluster import Cluster
from harness.holding import ALL
from harness.kubectl import condition
from harness.manifests import Object, claim, cpus, devices, on_numa_node, pod
from harness.waiting import eventually
from harness.workspace import Workspace

VOLUME = "not-there-yet"
NUMA1 = on_numa_node(1)


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of the mode while a claim for two CPUs waits."""

    before: dict[str, Any]
    after: dict[str, Any]
    waiting: Object  # the claim's request
    rest: Object  # a request for all four CPUs that are left
    left: dict[str, int]  # how many CPUs the devices offer together, by the beginning of their names


SWITCHES = {
    "grouped_to_individual": Switch(
        {}, {"mode": "individual"}, cpus(2, selector=NUMA1), devices(4), {"cpudevnuma": 0, "cpudev": 4}
    ),
    "individual_to_grouped": Switch(
        {"mode": "individual"},
        {"groupBy": "machine"},
        devices(2, selector=NUMA1),
        cpus(4),
        {"cpudevmachine": 4},
    ),
}


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES.keys())
def test_a_pod_that_waited_for_its_volume_gets_its_cpus_after_the_mode_has_changed(
    editable: Cluster, workspace: Workspace, switch: Switch
) -> None:
    editable.configure(**switch.before)
    workspace.apply(claim("two", switch.waiting), blocked(pod("waiting", claims={"two": "two"})))
    eventually(lambda: workspace.allocated_devices("two"))

    editable.edit(**switch.after)

    def draining() -> None:
        status = workspace.node.cpu_node()["status"]
        assert status["phase"] == "Draining"
        assert status["appliedRevision"] == workspace.node.cpu_node()["spec"]["revision"]
        for beginning, count in switch.left.items():
            assert offered(workspace, beginning) == count

    eventually(draining, within=30)
    workspace.apply(claim("rest", switch.rest))
    workspace.run(pod("newcomer", claims={"rest": "rest"}))
    newcomer = workspace.cpus("newcomer")
    assert len(newcomer) == 4
    assert condition(workspace.pod("waiting"), "Ready") == "False"

    unblock(workspace)
    workspace.kubectl.wait("condition=Ready", "pod/waiting", workspace.namespace, timeout=150)
    assert workspace.cpus("waiting") == workspace.cpus_at_start("waiting") == ALL - newcomer
    assert workspace.cpus("newcomer") == newcomer

    workspace.delete_pods("waiting")

    def drained() -> None:
        workspace.node.assert_ready()
        assert sum(offered(workspace, beginning) for beginning in switch.left) >= 2

    eventually(drained, within=90)


def blocked(item: Object) -> Object:
    """A pod that cannot start: the kubelet mounts volumes before it prepares claims."""
    item["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": VOLUME}}]
    item["spec"]["containers"][0]["volumeMounts"] = [{"name": "settings", "mountPath": "/settings"}]
    return item


def unblock(workspace: Workspace) -> None:
    """The volume is there."""
    workspace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": VOLUME}, "data": {"key": "value"}})


def offered(workspace: Workspace, beginning: str) -> int:
    """How many CPUs the published devices whose names begin so offer."""
    found = 0
    for name, device in workspace.node.devices().items():
        if name.startswith(beginning):
            found += int(device["capacity"]["dra.cpu/cpu"]["value"]) if "capacity" in device else 1
    return found

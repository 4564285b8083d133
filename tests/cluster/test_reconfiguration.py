"""The mode changes while a claim is in use and another one waits: no process moves, no container restarts, and a pod
whose volume the kubelet could not mount gets the CPUs of its claim afterwards.

Only real nodes show the cgroups, the agent's container, and that the kubelet mounts volumes before it prepares claims;
only the installed chart shows that the operator's own account can write its Events.
The sandbox's stories show on the real control plane which devices are offered when, and how configs follow labels or
stop: switch-mode-live, switch-grouping-live, waiting-claim, individual-cpus, two-configs, broken-config.
"""

from harness.cluster import Cluster
from harness.holding import ALL, hold, nothing_moved
from harness.kubectl import condition
from harness.manifests import Object, claim, cpus, devices, on_numa_node, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet

VOLUME = "not-there-yet"


def test_a_claim_in_use_and_a_waiting_claim_survive_a_change_of_mode(editable: Cluster, workspace: Workspace) -> None:
    node, agent, held = workspace.node, agent_container(workspace.node), hold(workspace)
    workspace.apply(
        claim("later", cpus(2, selector=on_numa_node(1))), blocked(pod("waiting", claims={"later": "later"}))
    )
    eventually(lambda: workspace.allocated_devices("later"))

    editable.edit(mode="individual")

    def others_are_offered() -> None:
        item = node.cpu_node()
        assert item["status"]["phase"] == "Draining"
        assert item["status"]["appliedRevision"] == item["spec"]["revision"]
        assert len(node.devices()) == len(ALL) - 4
        assert all(name.startswith("cpudev0") for name in node.devices())

    eventually(others_are_offered, within=30)
    nothing_moved(held)
    assert agent_container(node) == agent

    workspace.apply(claim("one", devices(1)))
    workspace.run(pod("newcomer", claims={"one": "one"}))
    newcomer = workspace.cpus("newcomer")
    ((_, device),) = workspace.allocated_devices("one")
    assert newcomer == workspace.cpus_at_start("newcomer") == CpuSet([int(device.removeprefix("cpudev"))])
    assert condition(workspace.pod("waiting"), "Ready") == "False"

    unblock(workspace)
    workspace.kubectl.wait("condition=Ready", "pod/waiting", workspace.namespace, timeout=150)
    waited = workspace.cpus("waiting")
    assert len(waited) == 2
    assert waited <= CpuSet.parse("4-7") - held.cpus - newcomer
    assert workspace.cpus_at_start("waiting") == waited == workspace.published_cpus("later")
    assert workspace.cpus("exclusive") == held.cpus
    assert workspace.cpus("newcomer") == newcomer
    assert workspace.cpus("beside") == ALL - held.cpus - newcomer - waited

    workspace.delete_pods("exclusive", "newcomer", "waiting")

    def all_come_back() -> None:
        node.assert_ready()
        assert sorted(node.devices()) == [f"cpudev{cpu:03d}" for cpu in ALL]
        assert workspace.cpus("beside") == ALL

    eventually(all_come_back, within=90)
    assert agent_container(node) == agent


def test_the_operator_can_report_a_failed_node_in_an_event(editable: Cluster) -> None:
    uid = editable.config()["metadata"]["uid"]
    editable.edit(reservedCPUs="0-1,99", rollout={"maxUnavailable": 1, "settleSeconds": 1})

    def reported() -> None:
        events = editable.kubectl.list("events", "default", "--field-selector", f"involvedObject.uid={uid}")
        assert "NodesFailed" in [event["reason"] for event in events]

    eventually(reported, within=60)


def agent_container(node: Node) -> str:
    """Returns the id of the agent's container."""
    (status,) = node.agent_pod()["status"]["containerStatuses"]
    return str(status["containerID"])


def blocked(item: Object) -> Object:
    """Makes a pod unable to start: the kubelet mounts volumes before it prepares claims."""
    item["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": VOLUME}}]
    item["spec"]["containers"][0]["volumeMounts"] = [{"name": "settings", "mountPath": "/settings"}]
    return item


def unblock(workspace: Workspace) -> None:
    """Creates the volume for which the pod waits."""
    workspace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": VOLUME}, "data": {"key": "value"}})

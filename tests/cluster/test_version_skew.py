"""helm upgrades and rolls back the release while claims are held: from the former version to the present one, then to
programs of the present and the next version together, and back.

No container leaves its CPUs at any moment, no node loses its devices, and no CpuNode is changed: nothing of a newer
version is used, so an upgrade is no reason to give a node its settings anew. Only real nodes show what the DaemonSet
and the kubelet do meanwhile, and what helm does with the CRDs.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest
from harness.cluster import Cluster
from harness.helm import Helm
from harness.holding import claims_come_and_go, hold, nothing_moved
from harness.kubectl import condition
from harness.manifests import Object, claim, cpus, pod
from harness.release import RELEASE
from harness.sampling import sampled
from harness.versions import tag_of
from harness.waiting import eventually
from harness.workspace import Workspace
from lab.host import timed
from next_version import PRESENT, Version
from skewed_cluster import given

PROBE: Final = "probe"  # a config that selects no node: its status shows when the operator has made a plan
AT_ONCE: Final = {"agent.maxUnavailable": "100%"}  # both agents: two nodes one after the other would take twice as long


@pytest.fixture
def helm(cluster: Cluster) -> Iterator[Helm]:
    """The release with the former version of everything; afterwards, the release is as it was before."""
    helm = Helm(cluster.lab)
    before = helm.revision()
    cluster.configure()
    probe = {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuDriverConfig", "metadata": {"name": PROBE}}
    cluster.kubectl.apply({**probe, "spec": {"nodeSelector": {"matchLabels": {"no": "node"}}, "priority": 1}})
    try:
        change(helm, cluster, "--no-hooks", chart=cluster.former, operator=cluster.former, agents=cluster.former)
        yield helm
    finally:
        cluster.kubectl.delete("cpudriverconfig", PROBE)
        helm.run("rollback", RELEASE, before, "--no-hooks")  # changes nothing when the test has passed
        eventually(cluster.assert_ready, within=180)


def test_upgrades_and_rollbacks_with_claims_held_change_no_container_and_no_node(
    cluster: Cluster, helm: Helm, workspace: Workspace
) -> None:
    coming = cluster.coming
    held, elsewhere = hold(workspace), workspace.using_node(cluster.nodes[-1])
    elsewhere.apply(claim("elsewhere", cpus(3)))
    elsewhere.run(pod("elsewhere", claims={"elsewhere": "elsewhere"}))
    placed, container = elsewhere.cpus("elsewhere"), elsewhere.container_id("elsewhere")
    before, devices = given(cpu_nodes(cluster)), [node.devices() for node in cluster.nodes]

    def unchanged() -> None:
        nothing_moved(held)
        assert elsewhere.node.cgroup_cpus(container) == (placed, placed)
        assert given(cpu_nodes(cluster)) == before
        assert [node.devices() for node in cluster.nodes] == devices

    with ExitStack() as stack:
        samplers = [stack.enter_context(sampled(node)) for node in cluster.nodes]
        unchanged()
        change(helm, cluster, chart=PRESENT, operator=PRESENT, agents=PRESENT)
        unchanged()
        revision = helm.revision()
        change(helm, cluster, "--no-hooks", chart=coming, operator=PRESENT, agents=coming)
        unchanged()
        change(helm, cluster, "--no-hooks", chart=coming, operator=coming, agents=PRESENT)
        unchanged()
        with timed("rollback to the present version"):
            helm.run("rollback", RELEASE, revision, "--no-hooks")
            wait_for(cluster, operator=PRESENT, agents=PRESENT)
        unchanged()
        verdicts = [sampler.verdict() for sampler in samplers]
    # an agent that never comes back would excuse everything
    assert all(span.end < verdict.log.end for verdict in verdicts for span in verdict.absences)
    assert not [violation for verdict in verdicts for violation in verdict.violations]
    claims_come_and_go(held)


def change(helm: Helm, cluster: Cluster, *options: str, chart: Version, operator: Version, agents: Version) -> None:
    """Upgrades the release to the chart of a version, with programs of these versions, and waits for them."""
    images = {"operator.image.tag": tag_of(operator), "agent.image.tag": tag_of(agents)}
    # the former chart has no such value
    memory = {"agent.memory": None if chart is cluster.former else {"enabled": True}}
    with timed(f"chart {chart.name}, operator {operator.name}, agents {agents.name}"):
        helm.upgrade(*options, values={**AT_ONCE, **images, **memory}, chart=chart.root / "charts/dra-cpu-operator")
        wait_for(cluster, operator=operator, agents=agents)


def wait_for(cluster: Cluster, *, operator: Version, agents: Version) -> None:
    """Waits until programs of these versions run on all nodes, and the operator has made a plan."""

    def running() -> None:
        pods = [cluster.operator_pod(), *(node.agent_pod() for node in cluster.nodes)]
        wanted = [tag_of(operator), *(tag_of(agents) for _ in cluster.nodes)]
        assert [pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods] == wanted
        assert [condition(pod, "Ready") for pod in pods] == ["True"] * len(pods)
        for item in cpu_nodes(cluster).values():
            status = item["status"]
            assert status["agentVersion"] == agents.number
            assert (status["phase"], status["appliedRevision"]) == ("Ready", item["spec"]["revision"])

    eventually(running, within=180)
    probe = cluster.config(PROBE)
    priority = {"spec": {"priority": probe["spec"]["priority"] + 1}}
    cluster.kubectl.run("patch", "cpudriverconfig", PROBE, "--type=merge", "--patch", json.dumps(priority))
    generation = cluster.config(PROBE)["metadata"]["generation"]

    def planned() -> None:
        assert cluster.config(PROBE)["status"]["observedGeneration"] == generation
        config = cluster.config()
        assert condition(config, "Accepted") == "True"
        assert config["status"]["nodes"]["applied"] == len(cluster.nodes)

    eventually(planned)


def cpu_nodes(cluster: Cluster) -> dict[str, Object]:
    """Returns all CpuNodes by name."""
    return {item["metadata"]["name"]: item for item in cluster.kubectl.list("cpunodes")}

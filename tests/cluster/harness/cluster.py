"""One cluster with our agent on it, for a whole session of tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from lab.cluster import Lab
from lab.host import exclusive, phase, run
from lab.nodes import Machine
from lab.paths import Paths
from lab.versions import KUBERNETES

from dracpu_api.settings import Settings
from harness.diagnosis import diagnose
from harness.kubectl import Kubectl, condition
from harness.manifests import Object, cpu_node
from harness.node import Node
from harness.waiting import eventually

PROJECT: Final = Path(__file__).parents[3]
CHART: Final = PROJECT / "charts" / "dra-cpu-operator"
NAMESPACE: Final = "dra-cpu-system"
NODE: Final = "vm1"
IMAGE: Final = "localhost/dracpu-agent"
TAG: Final = "lab"

CONDITIONS: Final = ("ConfigApplied", "KubeletRegistered", "RuntimeConnected", "SlicesPublished", "StateHealthy")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster: one node of 2 sockets, 2 NUMA nodes, 4 cores and 8 CPUs, with our agent."""

    lab: Lab
    kubectl: Kubectl
    node: Node

    def cpu_node(self) -> Object:
        """The node's CpuNode as it is now."""
        return self.kubectl.get("cpunode", self.node.name)

    def agent_pod(self) -> Object:
        """The agent's pod on the node."""
        pods = self.kubectl.list("pods", NAMESPACE, "--field-selector", f"spec.nodeName={self.node.name}")
        assert len(pods) == 1, f"there are {len(pods)} agent pods on {self.node.name}"
        return pods[0]

    def slices(self) -> list[Object]:
        """The slices of the node."""
        return self.kubectl.list("resourceslices", "", "--field-selector", f"spec.nodeName={self.node.name}")

    def devices(self) -> dict[str, Object]:
        """Published devices by name."""
        return {device["name"]: device for item in self.slices() for device in item["spec"].get("devices") or []}

    def configure(self, settings: Settings) -> None:
        """Gives the node settings and waits until it works by them."""
        wanted = cpu_node(self.kubectl.get("node", self.node.name), settings)
        self.kubectl.apply(wanted)
        eventually(lambda: self.assert_ready(wanted["spec"]["revision"]), within=120)

    def assert_ready(self, revision: str = "") -> None:
        """The agent runs, and the CpuNode says that the node has what it was told."""
        assert condition(self.agent_pod(), "Ready") == "True", "the agent's pod is not Ready"
        item = self.cpu_node()
        status = item.get("status", {})
        conditions = {kind: condition(item, kind) for kind in CONDITIONS}
        assert set(conditions.values()) == {"True"}, f"{conditions}: {status.get('conditions')}"
        wanted = revision or item["spec"]["revision"]
        assert status.get("appliedRevision") == wanted, f"{status.get('appliedRevision')} is applied, not {wanted}"
        assert status.get("phase") == "Ready", f"the phase is {status.get('phase')}"

    def diagnose(self, test_namespace: str = "") -> str:
        """What a person would look at after a failure."""
        return diagnose(self.kubectl, self.node, NAMESPACE, test_namespace)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Brings the cluster up and takes it down.

    LAB_KEEP=1 leaves it running afterwards; LAB_REUSE=1 takes a running one when its node has the current image.
    """
    lab = Lab(Paths.default())
    with exclusive(lab.paths.root / "session.lock"), phase("the whole session"):
        try:
            yield _bring_up(lab)
        finally:
            if not os.environ.get("LAB_KEEP"):
                lab.down()


def _bring_up(lab: Lab) -> Cluster:
    lab.build()
    archive = lab.paths.images / "agent.tar"
    with phase("the agent's image"):
        lab.image(PROJECT / "Dockerfile.agent", f"{IMAGE}:{TAG}", archive, PROJECT, {})
    if not (os.environ.get("LAB_REUSE") and lab.is_up_with([archive])):
        lab.down()
        with phase("cluster up"):
            lab.up(1, Machine(), [archive])
    cluster = Cluster(lab, Kubectl(lab), Node(lab, NODE))
    try:
        with phase("the agent Ready"):
            _install(cluster)
            cluster.configure(Settings())
    except BaseException as error:
        error.add_note(cluster.diagnose())
        raise
    return cluster


def _install(cluster: Cluster) -> None:
    """The objects' definitions, then the chart as plain manifests."""
    kubectl = cluster.kubectl
    definitions = [yaml.safe_load(file.read_text()) for file in sorted((PROJECT / "crds").glob("*.yaml"))]
    kubectl.apply(*definitions)
    for definition in definitions:
        kubectl.wait("condition=Established", f"crd/{definition['metadata']['name']}")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    kubectl.run("apply", "--namespace", NAMESPACE, "-f", "-", text=_render_chart(cluster.lab))


def _render_chart(lab: Lab) -> str:
    """With images that the node has already: nothing is ever pulled."""
    values = {
        "crds.install": "false",  # they are applied, and waited for, before
        "agent.image.repository": IMAGE,
        "agent.image.tag": TAG,
        "agent.image.pullPolicy": "Never",
    }
    words = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    words += ["--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    return run(lab.paths.bin / "helm", "template", "dra", CHART, *words)

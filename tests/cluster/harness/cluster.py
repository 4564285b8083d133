"""One cluster with our operator and agents on it, for a whole session of tests."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from lab.cluster import Lab
from lab.host import file_lock, timed
from lab.nodes import Machine
from lab.paths import Paths

from harness.diagnosis import diagnose
from harness.kubectl import Kubectl
from harness.manifests import Object
from harness.node import Node
from harness.release import CONFIG, IMAGES, NAMESPACE, PROJECT, QUICK, TAG, install, values
from harness.waiting import eventually

NODES: Final = ("vm1", "vm2")
OPERATOR_NODE: Final = NODES[-1]
NOT_OF_THE_NODE: Final = frozenset({"nodeSelector", "priority", "rollout"})  # fields of a config that no node is told


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster of two nodes, on which helm has installed the chart. The operator runs on the second."""

    lab: Lab
    kubectl: Kubectl
    nodes: tuple[Node, ...]

    @property
    def node(self) -> Node:
        """The node that most tests use: its plug may be pulled, the operator is elsewhere."""
        return self.nodes[0]

    def operator_pod(self) -> Object:
        """The operator's pod."""
        return self.kubectl.pod_of("operator", NAMESPACE)

    def kill_operator(self) -> None:
        """kill -9 of the operator; the kubelet starts it again."""
        pod = self.operator_pod()
        (container,) = pod["status"]["containerStatuses"]
        (node,) = (node for node in self.nodes if node.name == pod["spec"]["nodeName"])
        node.kill_container(container["containerID"])

    def config(self, name: str = CONFIG) -> Object:
        """A CpuDriverConfig as it is now."""
        return self.kubectl.get("cpudriverconfig", name)

    def edit(self, *, config: str = CONFIG, **spec: Any) -> None:
        """Makes a config say this and a quick rollout; what it said besides is the default again. Waits for nothing."""
        replaced = [{"op": "replace", "path": "/spec", "value": {**QUICK, **spec}}]
        self.kubectl.run("patch", "cpudriverconfig", config, "--type=json", "--patch", json.dumps(replaced))

    def configure(self, *, config: str = CONFIG, within: float = 120, **spec: Any) -> None:
        """Edits a config and waits until its nodes work by it; `configure()` alone undoes what tests have edited."""
        self.edit(config=config, **spec)
        eventually(lambda: self.assert_settled(config), within)

    def assert_settled(self, config: str = CONFIG) -> None:
        """All nodes of a config are Ready with what it says, and its status tells so."""
        item = self.config(config)
        told = {name: value for name, value in item["spec"].items() if name not in NOT_OF_THE_NODE}
        followers = self.followers(config)
        for node in followers:
            settings = node.cpu_node()["spec"]["settings"]
            assert settings == told, f"{node.name} is told {settings}, not {told}"
            node.assert_ready()
        status = item.get("status", {})
        assert status.get("observedGeneration") == item["metadata"]["generation"], f"the operator has not seen {config}"
        count = len(followers)
        assert status["nodes"] == {"selected": count, "applied": count, "progressing": 0, "failed": 0}

    def followers(self, config: str = CONFIG) -> list[Node]:
        """The nodes that a config has."""
        given = self.kubectl.list("cpunodes")
        names = {item["metadata"]["name"] for item in given if item["spec"]["config"]["name"] == config}
        return [node for node in self.nodes if node.name in names]

    @contextmanager
    def without_api_server(self) -> Iterator[None]:
        """While this lasts, nobody answers at the API server's address; afterwards it serves again."""
        self.lab.stop_api_server()
        try:
            yield
        finally:
            self.lab.start_api_server()

    def assert_ready(self) -> None:
        """Operator and agents run, and every node has the default config."""
        self.kubectl.run(
            "wait", "--for=condition=Available", "deployment/dracpu-operator", "-n", NAMESPACE, "--timeout=0"
        )
        assert self.followers() == list(self.nodes)
        self.assert_settled()

    def diagnose(self, test_namespace: str = "") -> str:
        """What a person would look at after a failure."""
        return diagnose(self.kubectl, self.nodes, test_namespace)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Brings the cluster up and takes it down.

    LAB_KEEP=1 leaves it running afterwards; LAB_REUSE=1 takes a running one when its nodes have the current images, and
    upgrades the release when the chart is another.
    """
    lab = Lab(Paths.default())
    with file_lock(lab.paths.root / "session.lock"), timed("the whole session"):
        try:
            yield _bring_up(lab)
        finally:
            if not os.environ.get("LAB_KEEP"):
                lab.down()


def _bring_up(lab: Lab) -> Cluster:
    lab.build()
    archives = []
    for component, repository in IMAGES.items():
        archives.append(lab.paths.images / f"{component}.tar")
        with timed(f"the {component}'s image"):
            lab.image(PROJECT / f"Dockerfile.{component}", f"{repository}:{TAG}", archives[-1], PROJECT, {})
    if not (os.environ.get("LAB_REUSE") and lab.is_up_with(archives) and lab.nodes() == list(NODES)):
        lab.down()
        with timed("cluster up"):
            lab.up(len(NODES), Machine(), archives)
    kubectl = Kubectl(lab)
    cluster = Cluster(lab, kubectl, tuple(Node(kubectl, name) for name in NODES))
    try:
        with timed("helm install"):
            install(lab, values(OPERATOR_NODE))
        with timed("operator and agents Ready"):
            cluster.edit()  # what an earlier session may have left
            eventually(cluster.assert_ready, within=180)
    except BaseException as error:
        error.add_note(cluster.diagnose())
        raise
    return cluster

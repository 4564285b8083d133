"""A cluster with the operator and agents of this project, for a whole session of tests."""

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
from lab.versions import default_gates
from next_version import Version

from harness.diagnosis import diagnose
from harness.kubectl import Kubectl
from harness.manifests import Object
from harness.node import Node
from harness.release import CONFIG, IMAGES, NAMESPACE, PROJECT, QUICK, TAG, install, values
from harness.versions import images, other_versions
from harness.waiting import eventually

NODES: Final = ("vm1", "vm2")
# each of the two NUMA nodes has 3 GiB, with a page of 1 GiB on the second one
MEMORY_MIB: Final = 6144
PAGES: Final = "default_hugepagesz=2M hugepagesz=1G hugepages=1:1 hugepagesz=2M hugepages=0:64,1:64"
OPERATOR_NODE: Final = NODES[-1]
FLEET_FIELDS: Final = frozenset({"nodeSelector", "priority", "rollout"})  # fields of a config that no CpuNode has


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster of two nodes on which helm has installed the chart. The operator runs on the second node."""

    lab: Lab
    kubectl: Kubectl
    nodes: tuple[Node, ...]
    former: Version  # whose images the nodes have, too
    coming: Version  # likewise: the next version

    @property
    def node(self) -> Node:
        """The node that most tests use. They may cut its power, because the operator runs on the other node."""
        return self.nodes[0]

    def operator_pod(self) -> Object:
        """Returns the operator's pod."""
        return self.kubectl.pod_of("operator", NAMESPACE)

    def leader(self) -> str:
        """Returns the name of the operator's pod that leads; "" when none does."""
        holder: str = self.kubectl.get("lease", "dracpu-operator", NAMESPACE)["spec"]["holderIdentity"]
        return holder.rpartition("_")[0]

    def kill_operator(self, name: str = "") -> None:
        """Kills the operator, or one of several by the name of its pod, with SIGKILL; the kubelet starts it again."""
        pod = self.kubectl.get("pod", name, NAMESPACE) if name else self.operator_pod()
        (container,) = pod["status"]["containerStatuses"]
        (node,) = (node for node in self.nodes if node.name == pod["spec"]["nodeName"])
        node.kill_container(container["containerID"])

    def config(self, name: str = CONFIG) -> Object:
        """Returns the current state of a CpuDriverConfig."""
        return self.kubectl.get("cpudriverconfig", name)

    def edit(self, *, config: str = CONFIG, **spec: Any) -> None:
        """Replaces a config's spec by these fields and a quick rollout, and does not wait for the nodes.

        Fields that are not given have their defaults.
        """
        replaced = [{"op": "replace", "path": "/spec", "value": {**QUICK, **spec}}]
        self.kubectl.run("patch", "cpudriverconfig", config, "--type=json", "--patch", json.dumps(replaced))

    def configure(self, *, config: str = CONFIG, within: float = 120, **spec: Any) -> None:
        """Edits a config and waits until its nodes have applied it. `configure()` without fields undoes all edits."""
        self.edit(config=config, **spec)
        eventually(lambda: self.assert_settled(config), within)

    def assert_settled(self, config: str = CONFIG) -> None:
        """Asserts that all nodes of a config have applied it and are Ready, and that its status reports this."""
        item = self.config(config)
        expected = {name: value for name, value in item["spec"].items() if name not in FLEET_FIELDS}
        followers = self.followers(config)
        for node in followers:
            settings = node.cpu_node()["spec"]["settings"]
            assert settings == expected, f"the CpuNode of {node.name} has the settings {settings}, not {expected}"
            node.assert_ready()
        status = item.get("status", {})
        observed, generation = status.get("observedGeneration"), item["metadata"]["generation"]
        assert observed == generation, f"the operator has observed generation {observed} of {config}, not {generation}"
        count = len(followers)
        done = {"selected": count, "applied": count, "progressing": 0, "failed": 0, "withoutAgent": 0}
        assert status["nodes"] == done

    def followers(self, config: str = CONFIG) -> list[Node]:
        """Returns the nodes whose CpuNodes name this config."""
        cpu_nodes = self.kubectl.list("cpunodes")
        names = {item["metadata"]["name"] for item in cpu_nodes if item["spec"]["config"]["name"] == config}
        return [node for node in self.nodes if node.name in names]

    @contextmanager
    def without_api_server(self) -> Iterator[None]:
        """Stops the API server during the body and starts it again afterwards."""
        self.lab.stop_api_server()
        try:
            yield
        finally:
            self.lab.start_api_server()

    def assert_ready(self) -> None:
        """Asserts that operator and agents are ready and that every node has applied the default config."""
        self.kubectl.run(
            "wait", "--for=condition=Available", "deployment/dracpu-operator", "-n", NAMESPACE, "--timeout=0"
        )
        assert self.followers() == list(self.nodes)
        self.assert_settled()

    def diagnose(self, test_namespace: str = "") -> str:
        """Returns the state of the cluster as text, for a person who looks into a failure."""
        return diagnose(self.kubectl, self.nodes, test_namespace)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Starts the cluster and stops it afterwards.

    LAB_KEEP=1 leaves it running afterwards. LAB_REUSE=1 uses a running cluster if its nodes have the current images,
    and upgrades the release if the chart has changed.
    """
    lab = Lab(Paths.default())
    with file_lock(lab.paths.root / "session.lock"), timed("the whole session"):
        try:
            yield _started(lab)
        finally:
            if not os.environ.get("LAB_KEEP"):
                lab.down()


def _started(lab: Lab) -> Cluster:
    lab.build()
    archives = []
    for component, repository in IMAGES.items():
        archives.append(lab.paths.images / f"{component}.tar")
        with timed(f"the {component}'s image"):
            lab.image(PROJECT / f"Dockerfile.{component}", f"{repository}:{TAG}", archives[-1], PROJECT, {})
    former, coming = other_versions(lab)
    archives += [archive for version in (former, coming) for archive in images(lab, version)]
    if not (os.environ.get("LAB_REUSE") and lab.is_up_with(archives) and lab.nodes() == list(NODES)):
        lab.down()
        with timed("cluster up"):
            machine = Machine(memory_mib=MEMORY_MIB, append=PAGES, feature_gates=default_gates())
            lab.up(len(NODES), machine, archives)
    kubectl = Kubectl(lab)
    cluster = Cluster(lab, kubectl, tuple(Node(kubectl, name) for name in NODES), former, coming)
    try:
        with timed("helm install"):
            install(lab, values(OPERATOR_NODE))
        with timed("operator and agents Ready"):
            cluster.edit()  # an earlier session may have left an edited config
            eventually(cluster.assert_ready, within=180)
    except BaseException as error:
        error.add_note(cluster.diagnose())
        raise
    return cluster

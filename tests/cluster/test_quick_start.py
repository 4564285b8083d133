"""The README's quick start works on this cluster: each command prints the text in the README.

Only a real node shows this as a reader sees it: `kubectl logs` prints what a process in the container has read.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.cluster import Cluster
from harness.release import CHART, PROJECT
from harness.waiting import eventually
from harness.workspace import Workspace
from lab.images import BUSYBOX_IMAGE
from transcript import comparable, steps

STEPS = list(steps(PROJECT / "README.md", "Quick start"))
INSTALLING = [step for step in STEPS if step.command.startswith("helm ")]


@pytest.fixture
def console(editable: Cluster, workspace: Workspace, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """A shell after the installation. Its node has the example's image, and the example can run only on this node."""
    editable.node.sh(f"ctr --namespace k8s.io images tag --force {BUSYBOX_IMAGE} docker.io/library/busybox:1.37")
    editable.configure()
    eventually(lambda: assert_no_cpu_is_held(editable), within=120)
    lab, kubeconfig = editable.lab, tmp_path / "kubeconfig"
    kubeconfig.write_bytes(lab.paths.kubeconfig.read_bytes())
    lab.script(f"kubectl config set-context --current --namespace={workspace.namespace}", PROJECT, kubeconfig)
    others = [node.name for node in editable.nodes if node != editable.node]
    editable.kubectl.run("cordon", *others)
    yield lambda command: lab.script(command, PROJECT, kubeconfig)
    editable.kubectl.run("uncordon", *others)


def assert_no_cpu_is_held(cluster: Cluster) -> None:
    """Asserts that the status does not count claims of an earlier test any more: agents report them some seconds later,
    and the README shows its sums."""
    assert cluster.config()["status"]["cpus"]["exclusive"] == 0


def test_the_session_prints_the_text_of_the_readme(console: Callable[[str], str]) -> None:
    for step in STEPS:
        if step not in INSTALLING:
            assert comparable(console(step.command)) == comparable(step.printed), step.command


def test_the_readme_installs_the_chart_of_this_project() -> None:
    (step,) = INSTALLING
    assert f" {CHART.relative_to(PROJECT)} " in step.command

"""One cluster for all cluster tests, a namespace for each test, and a diagnosis of each failure."""

import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from harness.cluster import Cluster, running_cluster
from harness.node import Node
from harness.workspace import Workspace

CLUSTER: Final = pytest.StashKey[Cluster]()
NAMESPACE: Final = pytest.StashKey[str]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An emulated node takes its time, and the first test's time includes bringing the cluster up."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster. What goes on in these minutes is shown at once instead of being captured."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        with capture.global_and_fixture_disabled():
            made = stack.enter_context(running_cluster())
        request.config.stash[CLUSTER] = made
        yield made
        with capture.global_and_fixture_disabled():
            stack.close()


@pytest.fixture
def node(cluster: Cluster) -> Node:
    """The node that a test uses when it needs only one."""
    return cluster.node


@pytest.fixture
def editable(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, for a test that edits the default config. It stands first: it is undone after the workspace."""
    yield cluster
    cluster.configure()


@pytest.fixture
def workspace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    """An empty namespace, named after the test; its pods are gone, and their CPUs free, before the next test."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:60].strip("-")
    request.node.stash[NAMESPACE] = name
    kubectl = cluster.kubectl
    kubectl.delete("namespace", name)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield Workspace(kubectl, cluster.node, name)
    kubectl.delete("pods,resourceclaims", "--all", namespace=name)
    kubectl.run("delete", "namespace", name, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what the cluster says to a failure, while it is still as it was."""
    report = yield
    if report.failed and (made := item.config.stash.get(CLUSTER, None)):
        report.sections.append(("the cluster", made.diagnose(item.stash.get(NAMESPACE, ""))))
    return report

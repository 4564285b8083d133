"""Fixtures of the cluster tests: one cluster for all of them, a namespace for each, and a diagnosis of each failure."""

import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from harness.cluster import Cluster, running_cluster
from harness.memory import install_tools
from harness.node import Node
from harness.workspace import Workspace

CLUSTER: Final = pytest.StashKey[Cluster]()
NAMESPACE: Final = pytest.StashKey[str]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sets a long timeout: emulated nodes are slow, and the first test also starts the cluster.

    Tests that need no node run first: the emulated nodes use more than one core even when they are idle.
    """
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in ours:
        item.add_marker(pytest.mark.timeout(900))
    items.sort(key=lambda item: item in ours and "cluster" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Starts the cluster for the whole session. Its progress is printed at once instead of being captured."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        with capture.global_and_fixture_disabled():
            running = stack.enter_context(running_cluster())
        request.config.stash[CLUSTER] = running
        yield running
        with capture.global_and_fixture_disabled():
            stack.close()


@pytest.fixture
def node(cluster: Cluster) -> Node:
    """Returns the node that a test uses when it needs only one."""
    return cluster.node


@pytest.fixture
def editable(cluster: Cluster) -> Iterator[Cluster]:
    """Returns the cluster to a test that edits the default config, and restores the config afterwards.

    A test names this fixture before `workspace`, so that the config is restored after the workspace is empty.
    """
    yield cluster
    cluster.configure()


@pytest.fixture
def workspace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    """Creates a namespace with the test's name and afterwards waits until its pods are gone and their CPUs are free."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:60].strip("-")
    request.node.stash[NAMESPACE] = name
    kubectl = cluster.kubectl
    kubectl.delete("namespace", name)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield Workspace(kubectl, cluster.node, name)
    # the processes of some pods ignore SIGTERM: they would take 30 s each
    kubectl.delete("pods,resourceclaims", "--all", "--grace-period=1", namespace=name)
    kubectl.run("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def offering(cluster: Cluster) -> Iterator[Cluster]:
    """The nodes offer memory."""
    for node in cluster.nodes:
        install_tools(node)
    cluster.configure(memory={"enabled": True})
    yield cluster
    cluster.configure()


@pytest.fixture(params=["systemd", "cgroupfs"])
def space(request: pytest.FixtureRequest, offering: Cluster, workspace: Workspace) -> Workspace:
    """A namespace whose pods run on a node with this cgroup driver."""
    (node,) = (node for node in offering.nodes if node.has_systemd == (request.param == "systemd"))
    return workspace.using_node(node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the state of the cluster to the report of a failure, before fixtures change it."""
    report = yield
    if report.failed and (running := item.config.stash.get(CLUSTER, None)):
        report.sections.append(("the cluster", running.diagnose(item.stash.get(NAMESPACE, ""))))
    return report

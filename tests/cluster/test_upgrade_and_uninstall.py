"""helm upgrades and uninstalls the chart while pods run and claims are in use: running containers are not affected, and
a new installation takes over the existing objects.

Only real nodes show this: helm runs the chart's hooks as pods, and the DaemonSet replaces agents under running
containers.

These tests remove the chart, and install it again at their end.
"""

from collections.abc import Iterator
from typing import Final

import pytest
from harness.cluster import OPERATOR_NODE, Cluster
from harness.driver_call import prepare
from harness.helm import Helm
from harness.holding import ALL, claims_come_and_go, hold, nothing_moved
from harness.manifests import Object, claim, cpus, pod
from harness.node import Node
from harness.release import CHART, CONFIG, NAMESPACE, RELEASE, install, values
from harness.waiting import eventually
from harness.workspace import Workspace
from lab.errors import CommandFailedError

from dracpu_api.cpuset import CpuSet

MACHINE: Final = CpuSet.parse("0-7")
CHECK: Final = "dracpu-uninstall-check"  # the Job that prevents the uninstallation


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Helm]:
    """The release for tests to change; afterwards, the release and the default config are restored."""
    yield Helm(cluster.lab)
    cluster.kubectl.delete("job", CHECK, namespace=NAMESPACE)
    install(cluster.lab, values(OPERATOR_NODE))
    cluster.edit()
    eventually(cluster.assert_ready, within=180)


@pytest.fixture
def helm(cluster: Cluster, release: Helm) -> Helm:
    """The release on nodes with the default config of the tests, whatever the test before has left."""
    cluster.configure()
    return release


@pytest.fixture
def chart_comes_back(cluster: Cluster) -> Iterator[None]:
    """Installs the chart at the end, also after a failure. It comes last: deleting pods needs an agent."""
    yield
    install(cluster.lab, values(OPERATOR_NODE))


# ---- upgrades


def test_an_upgrade_that_restarts_all_pods_moves_no_container_and_keeps_an_edited_config(
    cluster: Cluster, helm: Helm, workspace: Workspace
) -> None:
    held, former = hold(workspace), our_pods(cluster)
    answer = prepare(cluster.node, workspace.claim("two"))
    cluster.configure(allocation={"preferUncoreCache": False})
    edited = cluster.config()["spec"]

    annotation = {"example.com/restarted": "for-a-test"}
    printed = helm.upgrade(
        values={
            "agent.podAnnotations": annotation,
            "operator.podAnnotations": annotation,
            "defaultConfig.spec.allocation.strategy": "distributed",
        }
    )

    assert f"CpuDriverConfig {CONFIG}: left as it is: its spec was written by kubectl-patch" in printed
    assert cluster.config()["spec"] == edited

    def restarted() -> None:
        assert our_pods(cluster).isdisjoint(former)
        cluster.assert_ready()

    eventually(restarted, within=180)
    nothing_moved(held)
    assert prepare(cluster.node, workspace.claim("two")) == answer
    claims_come_and_go(held)


def test_a_deleted_default_config_is_created_by_an_upgrade_before_nodes_lose_their_devices(
    cluster: Cluster, helm: Helm, workspace: Workspace
) -> None:
    held, devices = hold(workspace), cluster.node.devices()
    kept = {node.name: node.cpu_node()["metadata"]["uid"] for node in cluster.nodes}
    cluster.kubectl.delete("cpudriverconfig", CONFIG)  # docs: an edited config is created again after its deletion

    def removal_is_pending() -> None:
        assert [node.name for node in cluster.nodes if "dra.cpu/remove-after" in annotations(node)]

    eventually(removal_is_pending)
    cluster.kill_operator()  # what is due is stored on the CpuNodes, so that a restart forgets nothing

    for strategy, done in (("distributed", "created"), ("packed", "updated")):
        printed = helm.upgrade(values={"defaultConfig.spec.allocation.strategy": strategy})
        assert f"CpuDriverConfig {CONFIG}: {done}" in printed
        assert cluster.config()["spec"]["allocation"]["strategy"] == strategy
        eventually(cluster.assert_settled, within=90)
        nothing_moved(held)

    assert {node.name: node.cpu_node()["metadata"]["uid"] for node in cluster.nodes} == kept

    def no_removal_is_pending() -> None:
        assert not [node.name for node in cluster.nodes if "dra.cpu/remove-after" in annotations(node)]

    eventually(no_removal_is_pending)
    assert cluster.node.devices() == devices


def test_nodes_that_no_config_selects_lose_their_devices_and_no_container_moves(
    cluster: Cluster, helm: Helm, workspace: Workspace
) -> None:
    held = hold(workspace)
    at_once = {"maxUnavailable": "100%", "removalSeconds": 0}
    cluster.edit(nodeSelector={"matchLabels": {"dra.cpu/test": "nobody-has-this-label"}}, rollout=at_once)

    def without_settings() -> None:
        assert not cluster.kubectl.list("cpunodes")
        assert not cluster.node.devices()

    eventually(without_settings)
    nothing_moved(held)
    cluster.configure()
    eventually(cluster.assert_ready)
    nothing_moved(held)


# ---- uninstalling


def test_uninstalling_is_rejected_while_a_claim_is_in_use_and_the_release_continues(
    cluster: Cluster, helm: Helm, workspace: Workspace
) -> None:
    held, former = hold(workspace), our_pods(cluster)
    holder = f"{workspace.namespace}/two on node {cluster.node.name} holds CPUs: used by pod exclusive"

    with pytest.raises(CommandFailedError) as refused:
        helm.uninstall()

    assert holder in refused.value.printed
    assert "1 claim holds CPUs: delete the pods that use them" in refused.value.printed
    assert holder in cluster.kubectl.run("logs", f"job/{CHECK}", "--namespace", NAMESPACE)
    assert our_pods(cluster) == former
    cluster.assert_ready()

    # docs: helm hides the release and does not upgrade it until it is rolled back to its revision
    assert RELEASE not in helm.listed()
    assert helm.listed("--all")[RELEASE] == "uninstalling"
    with pytest.raises(CommandFailedError, match="has no deployed releases"):
        helm.upgrade()
    helm.run("rollback", RELEASE, helm.revision())
    assert helm.listed()[RELEASE] == "deployed"
    helm.upgrade("--no-hooks")
    assert our_pods(cluster) == former
    claims_come_and_go(held)


def test_claims_survive_an_uninstall_without_hooks_and_the_next_install_takes_them_over(
    cluster: Cluster, helm: Helm, workspace: Workspace, chart_comes_back: None
) -> None:
    node, kubectl = cluster.node, cluster.kubectl
    cluster.configure(allocation={"strategy": "distributed"})  # as if a user had edited it
    workspace.apply(claim("two", cpus(2)), claim("one", cpus(1)), claim("another", cpus(1)))
    workspace.run(
        pod("running", claims={"two": "two"}),
        pod("restarting", claims={"one": "one"}),
        pod("leaving", claims={"another": "another"}),
        pod("beside"),
    )
    placed = {name: workspace.cpus(name) for name in ("running", "restarting", "leaving", "beside")}
    containers = {name: workspace.container_id(name) for name in placed}
    answer, kept = prepare(node, workspace.claim("two")), kept_state(cluster)

    assert "kept due to the resource policy" in helm.uninstall("--no-hooks")

    eventually(lambda: chart_is_gone(cluster))
    eventually(lambda: no_slices_remain(cluster))  # docs: within a minute
    assert kept_state(cluster) == kept
    for name, container in containers.items():
        assert node.cgroup_cpus(container) == (placed[name], placed[name])

    # containers start now on any CPU; a pod with a claim cannot be deleted
    node.kill_container(containers["restarting"])
    kubectl.run("delete", "pod", "leaving", "--namespace", workspace.namespace, "--wait=false")
    workspace.run(pod("late"))
    assert workspace.cpus_at_start("late") == MACHINE
    assert eventually(lambda: workspace.cpus_at_first("restarting", 1)) == MACHINE
    eventually(lambda: is_stuck(workspace, "leaving"))

    install(cluster.lab, values(OPERATOR_NODE))

    def taken_up() -> None:
        cluster.assert_ready()
        assert not kubectl.find("pod", "leaving", workspace.namespace)
        assert workspace.cpus("running") == placed["running"]
        assert workspace.cpus("restarting") == placed["restarting"]
        shared = ALL - placed["running"] - placed["restarting"]
        assert workspace.cpus("beside") == workspace.cpus("late") == shared

    eventually(taken_up, within=180)
    assert workspace.container_id("running") == containers["running"]
    assert prepare(node, workspace.claim("two")) == answer
    assert kept_state(cluster)[0] == kept[0]


def test_an_uninstall_without_claims_succeeds_and_keeps_objects_for_a_release_of_that_name(
    cluster: Cluster, helm: Helm
) -> None:
    assert f'release "{RELEASE}" uninstalled' in helm.uninstall()
    assert not helm.listed("--all")
    assert cluster.config()

    another = ("install", "another", CHART, "--dry-run=server")
    with pytest.raises(CommandFailedError, match="invalid ownership metadata"):
        helm.run(*another)
    helm.run(*another, "--take-ownership")
    helm.run(*another, "--set", "crds.install=false")


# ---- the state of the cluster


def kept_state(cluster: Cluster) -> tuple[list[tuple[str, Object]], str]:
    """Returns what an uninstallation keeps: the config, the CpuNodes, and files on the node."""
    objects = [cluster.config(), *(node.cpu_node() for node in cluster.nodes)]
    files = cluster.node.sh("cat /var/run/cdi/dra.k8s.io-cpu_*.json /var/lib/dracpu/checkpoint.json")
    return [(item["metadata"]["uid"], item["spec"]) for item in objects], files


def annotations(node: Node) -> Object:
    """Returns the annotations of the node's CpuNode."""
    found: Object = node.cpu_node()["metadata"].get("annotations", {})
    return found


def our_pods(cluster: Cluster) -> set[str]:
    """Returns the current or last containers of operator and agents."""
    selector = "app.kubernetes.io/component in (operator, agent)"
    pods = cluster.kubectl.list("pods", NAMESPACE, "--selector", selector)
    statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    return {status["containerID"] for status in statuses if "containerID" in status}


def chart_is_gone(cluster: Cluster) -> None:
    kinds = "deployments,daemonsets,pods,serviceaccounts,roles,rolebindings"
    left = cluster.kubectl.list(kinds, "", "--all-namespaces", "--selector", f"app.kubernetes.io/instance={RELEASE}")
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
    left += cluster.kubectl.list(kinds, "", "--selector", f"app.kubernetes.io/instance={RELEASE}")
    names = [item["metadata"]["name"] for item in left]
    assert [name for name in names if not name.startswith(CHECK)] == []  # the log of a failed check remains for users
    assert not cluster.kubectl.find("deviceclass", "dra.cpu")


def no_slices_remain(cluster: Cluster) -> None:
    assert [item["metadata"]["name"] for node in cluster.nodes for item in node.slices()] == []


def is_stuck(workspace: Workspace, name: str) -> None:
    """Asserts that the pod's container has ended, but the pod remains. Only the kubelet's log contains the reason."""
    pod = workspace.pod(name)
    assert pod["metadata"]["deletionTimestamp"]
    assert "terminated" in workspace.container_status(name)["state"]
    logged = workspace.node.sh(f"grep -F {pod['metadata']['uid']} /var/log/kubelet.log")
    assert "DRA driver dra.cpu is not registered" in logged

"""helm upgrades and uninstalls the chart under pods that run and claims that are held: nothing that runs notices, and
what was there before is taken up again.

Only real nodes show this: helm runs the chart's hooks as pods, and the DaemonSet replaces agents under running
containers.

These tests take the chart away; when they are through, it stands as they found it.
"""

from collections.abc import Iterator
from typing import Final

import pytest
from harness.cluster import OPERATOR_NODE, Cluster
from harness.driver_call import prepare
from harness.helm import Helm
from harness.holding import ALL, claims_come_and_go, hold, nothing_moved
from harness.manifests import Object, claim, cpus, pod
from harness.release import CHART, CONFIG, NAMESPACE, RELEASE, install, values
from harness.waiting import eventually
from harness.workspace import Workspace
from lab.errors import CommandFailedError

from dracpu_api.cpuset import CpuSet

MACHINE: Final = CpuSet.parse("0-7")
CHECK: Final = "dracpu-uninstall-check"  # the Job that refuses to uninstall


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Helm]:
    """The release for tests to change; afterwards it is as it was, and so is the config that other tests start from."""
    yield Helm(cluster.lab)
    cluster.kubectl.delete("job", CHECK, namespace=NAMESPACE)
    install(cluster.lab, values(OPERATOR_NODE))
    cluster.edit()
    eventually(cluster.assert_ready, within=180)


@pytest.fixture
def helm(cluster: Cluster, release: Helm) -> Helm:
    """The release on nodes that have the config that tests start from, whatever the test before has left."""
    cluster.configure()
    return release


@pytest.fixture
def chart_comes_back(cluster: Cluster) -> Iterator[None]:
    """The chart is installed in the end, also when the test fails. It stands last: pods cannot go without an agent."""
    yield
    install(cluster.lab, values(OPERATOR_NODE))


# ---- upgrades


def test_an_upgrade_that_restarts_operator_and_agents_moves_nothing_and_leaves_an_edited_config_alone(
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


def test_the_default_config_follows_the_values_when_nobody_has_edited_it(
    cluster: Cluster, helm: Helm, workspace: Workspace
) -> None:
    held = hold(workspace)
    cluster.kubectl.delete("cpudriverconfig", CONFIG)  # what others have edited is made anew, as the docs say

    def without_settings() -> None:
        assert not cluster.kubectl.list("cpunodes")
        assert not cluster.node.devices()

    eventually(without_settings)
    nothing_moved(held)

    for strategy, done in (("distributed", "created"), ("packed", "updated")):
        printed = helm.upgrade(values={"defaultConfig.spec.allocation.strategy": strategy})
        assert f"CpuDriverConfig {CONFIG}: {done}" in printed
        assert cluster.config()["spec"]["allocation"]["strategy"] == strategy
        eventually(cluster.assert_settled, within=90)
        nothing_moved(held)


# ---- uninstalling


def test_uninstalling_is_refused_while_a_claim_is_held_and_the_release_goes_on(
    cluster: Cluster, helm: Helm, workspace: Workspace
) -> None:
    held, former = hold(workspace), our_pods(cluster)
    holder = f"{workspace.namespace}/two on node {cluster.node.name}: used by pod exclusive"

    with pytest.raises(CommandFailedError) as refused:
        helm.uninstall()

    assert holder in refused.value.printed
    assert "1 claim holds CPUs: delete the pods that use them" in refused.value.printed
    assert holder in cluster.kubectl.run("logs", f"job/{CHECK}", "--namespace", NAMESPACE)
    assert our_pods(cluster) == former
    cluster.assert_ready()

    # as the docs say: helm hides the release and upgrades it no more, until it is rolled back to where it is
    assert RELEASE not in helm.listed()
    assert helm.listed("--all")[RELEASE] == "uninstalling"
    with pytest.raises(CommandFailedError, match="has no deployed releases"):
        helm.upgrade()
    helm.run("rollback", RELEASE, helm.revision())
    assert helm.listed()[RELEASE] == "deployed"
    helm.upgrade("--no-hooks")
    assert our_pods(cluster) == former
    claims_come_and_go(held)


def test_what_is_held_outlives_an_uninstall_without_hooks_and_the_next_install_takes_it_up(
    cluster: Cluster, helm: Helm, workspace: Workspace, chart_comes_back: None
) -> None:
    node, kubectl = cluster.node, cluster.kubectl
    cluster.configure(allocation={"strategy": "distributed"})  # somebody has edited it
    workspace.apply(claim("two", cpus(2)), claim("one", cpus(1)), claim("another", cpus(1)))
    workspace.run(
        pod("running", claims={"two": "two"}),
        pod("restarting", claims={"one": "one"}),
        pod("leaving", claims={"another": "another"}),
        pod("beside"),
    )
    placed = {name: workspace.cpus(name) for name in ("running", "restarting", "leaving", "beside")}
    containers = {name: workspace.container_id(name) for name in placed}
    answer, kept = prepare(node, workspace.claim("two")), what_is_kept(cluster)

    assert "kept due to the resource policy" in helm.uninstall("--no-hooks")

    eventually(lambda: nothing_of_ours_runs(cluster))
    eventually(lambda: nothing_is_offered(cluster))  # within a minute, as the docs say
    assert what_is_kept(cluster) == kept
    for name, container in containers.items():
        assert node.cgroup_cpus(container) == (placed[name], placed[name])

    # what starts now runs, on any CPU; a pod with a claim cannot go
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
    assert what_is_kept(cluster)[0] == kept[0]


def test_with_no_claim_held_it_uninstalls_and_keeps_its_objects_for_the_release_of_that_name(
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


# ---- what there is


def what_is_kept(cluster: Cluster) -> tuple[list[tuple[str, Object]], str]:
    """What the chart leaves behind: config and CpuNodes, and files on the node."""
    objects = [cluster.config(), *(node.cpu_node() for node in cluster.nodes)]
    files = cluster.node.sh("cat /var/run/cdi/dra.k8s.io-cpu_*.json /var/lib/dracpu/checkpoint.json")
    return [(item["metadata"]["uid"], item["spec"]) for item in objects], files


def our_pods(cluster: Cluster) -> set[str]:
    """The containers of operator and agents that run, or have run last."""
    selector = "app.kubernetes.io/component in (operator, agent)"
    pods = cluster.kubectl.list("pods", NAMESPACE, "--selector", selector)
    statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    return {status["containerID"] for status in statuses if "containerID" in status}


def nothing_of_ours_runs(cluster: Cluster) -> None:
    kinds = "deployments,daemonsets,pods,serviceaccounts,roles,rolebindings"
    left = cluster.kubectl.list(kinds, "", "--all-namespaces", "--selector", f"app.kubernetes.io/instance={RELEASE}")
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
    left += cluster.kubectl.list(kinds, "", "--selector", f"app.kubernetes.io/instance={RELEASE}")
    names = [item["metadata"]["name"] for item in left]
    assert [name for name in names if not name.startswith(CHECK)] == []  # its log stays for whoever was refused
    assert not cluster.kubectl.find("deviceclass", "dra.cpu")


def nothing_is_offered(cluster: Cluster) -> None:
    assert [item["metadata"]["name"] for node in cluster.nodes for item in node.slices()] == []


def is_stuck(workspace: Workspace, name: str) -> None:
    """The pod's container has ended, and it is still there. Only the kubelet's log tells why."""
    pod = workspace.pod(name)
    assert pod["metadata"]["deletionTimestamp"]
    assert "terminated" in workspace.container_status(name)["state"]
    said = workspace.node.sh(f"grep -F {pod['metadata']['uid']} /var/log/kubelet.log")
    assert "DRA driver dra.cpu is not registered" in said

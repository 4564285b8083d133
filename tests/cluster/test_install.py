"""After `helm install`, operator and agents run, nodes offer their CPUs, and kubectl shows it.

Only real nodes show that the images start, that the chart's hooks run, and which rights the chart's accounts have.
"""

import pytest
from harness.cluster import NODES, Cluster
from harness.kubectl import condition
from harness.release import CONFIG, NAMESPACE
from harness.waiting import eventually

CPUS = {"total": 16, "reserved": 4, "exclusive": 0, "available": 12}  # two nodes, each of which withholds a core


@pytest.fixture
def installed(cluster: Cluster) -> Cluster:
    """The cluster, once its status contains no claim of an earlier test."""

    def settled() -> None:
        cluster.assert_ready()
        assert cluster.config()["status"]["cpus"] == CPUS

    eventually(settled)
    return cluster


def test_the_operator_is_available_and_each_node_has_an_agent(installed: Cluster) -> None:
    deployment = installed.kubectl.get("deployment", "dracpu-operator", NAMESPACE)
    assert condition(deployment, "Available") == "True"
    assert deployment["status"]["readyReplicas"] == 1
    daemons = installed.kubectl.get("daemonset", "dracpu-agent", NAMESPACE)["status"]
    assert daemons["desiredNumberScheduled"] == daemons["numberReady"] == len(NODES)


def test_the_default_config_reports_no_problem(installed: Cluster) -> None:
    config = installed.config()
    done = {"selected": 2, "applied": 2, "progressing": 0, "failed": 0, "withoutAgent": 0}
    assert config["status"]["nodes"] == done
    statuses = {
        kind: condition(config, kind) for kind in ("Accepted", "Progressing", "Available", "Degraded", "Conflicted")
    }
    assert statuses == {
        "Accepted": "True",
        "Progressing": "False",
        "Available": "True",
        "Degraded": "False",
        "Conflicted": "False",
    }
    assert config["status"]["observedGeneration"] == config["metadata"]["generation"]


def test_each_node_has_a_cpu_node_that_it_owns(installed: Cluster) -> None:
    for node in installed.nodes:
        (owner,) = node.cpu_node()["metadata"]["ownerReferences"]
        uid = installed.kubectl.get("node", node.name)["metadata"]["uid"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", node.name, uid)


def test_each_node_publishes_its_numa_nodes(installed: Cluster) -> None:
    for node in installed.nodes:
        offered = {name: device["capacity"]["dra.cpu/cpu"]["value"] for name, device in node.devices().items()}
        assert offered == {"cpudevnuma000": "2", "cpudevnuma001": "4"}


def test_kubectl_get_shows_configs_and_nodes_with_their_columns(installed: Cluster) -> None:
    configs, nodes = installed.kubectl.tables("cpucfg,cpun")
    (shown,) = configs
    assert shown.pop("AGE")
    assert shown == {
        "NAME": f"cpudriverconfig.dra.cpu/{CONFIG}",
        "MODE": "grouped",
        "GROUPBY": "numanode",
        "RESERVED": "",
        "NODES": "2",
        "APPLIED": "2",
        "FAILED": "0",
        "AVAILABLE": "12",
    }
    for name, row in zip(NODES, nodes, strict=True):
        assert row.pop("AGE")
        assert row == {
            "NAME": f"cpunode.dra.cpu/{name}",
            "CONFIG": CONFIG,
            "MODE": "grouped",
            "CPUS": "8",
            "RESERVED": "0-1",
            "EXCLUSIVE": "",
            "CLAIMS": "0",
            "PHASE": "Ready",
            "AGENT-READY": "true",
        }


def test_objects_that_only_the_installation_needs_are_deleted(cluster: Cluster) -> None:
    kinds = "serviceaccounts,clusterroles,clusterrolebindings,jobs"
    for item in cluster.kubectl.list(kinds, NAMESPACE, "--selector", "app.kubernetes.io/instance=dra"):
        assert item["metadata"]["name"] in {"dracpu-operator", "dracpu-agent"}, item["kind"]


@pytest.mark.parametrize(
    ("account", "verb", "resource"),
    [
        ("dracpu-operator", "get", "secrets"),
        ("dracpu-operator", "list", "pods"),
        ("dracpu-operator", "create", "pods"),
        ("dracpu-operator", "patch", "nodes"),
        ("dracpu-operator", "patch", "cpudriverconfigs.dra.cpu"),
        ("dracpu-operator", "update", "cpunodes.dra.cpu/status"),
        ("dracpu-operator", "patch", "resourceclaims.resource.k8s.io"),
        ("dracpu-operator", "create", "resourceslices.resource.k8s.io"),
        ("dracpu-operator", "bind", "clusterroles.rbac.authorization.k8s.io"),
        ("dracpu-agent", "get", "secrets"),
        ("dracpu-agent", "list", "pods"),
        ("dracpu-agent", "patch", "nodes"),
        ("dracpu-agent", "list", "resourceclaims.resource.k8s.io"),
        ("dracpu-agent", "delete", "resourceclaims.resource.k8s.io"),
        ("dracpu-agent", "get", "cpudriverconfigs.dra.cpu"),
        ("dracpu-agent", "create", "cpunodes.dra.cpu"),
        ("dracpu-agent", "patch", "cpunodes.dra.cpu"),
    ],
)
def test_accounts_do_not_have_unnecessary_rights(cluster: Cluster, account: str, verb: str, resource: str) -> None:
    assert not cluster.kubectl.may(account, verb, resource, NAMESPACE)


@pytest.mark.parametrize(
    ("account", "verb", "resource"),
    [
        ("dracpu-operator", "patch", "cpudriverconfigs.dra.cpu/status"),
        ("dracpu-operator", "patch", "cpunodes.dra.cpu/status"),
        ("dracpu-operator", "list", "resourceclaims.resource.k8s.io"),
        ("dracpu-agent", "get", "resourceclaims.resource.k8s.io"),
        ("dracpu-agent", "patch", "cpunodes.dra.cpu/status"),
    ],
)
def test_accounts_have_the_rights_that_they_need(cluster: Cluster, account: str, verb: str, resource: str) -> None:
    assert cluster.kubectl.may(account, verb, resource, NAMESPACE)

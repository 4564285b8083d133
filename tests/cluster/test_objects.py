"""The API server accepts valid objects, rejects invalid ones with a reason, and shows both kinds with their columns.

Only the installed chart shows that helm applies the CRDs that the project describes.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import corpus_files
import doc_manifests
import pytest
from corpus_files import Case
from doc_manifests import Shown
from harness.cluster import Cluster
from lab.errors import CommandFailedError

# a config without nodes: these tests must not reconfigure the cluster that they share with others
NO_NODES = {"nodeSelector": {"matchLabels": {"dra.cpu/test": "nobody-has-this-label"}}}


def try_out(cluster: Cluster, item: Any) -> dict[str, Any]:
    """Returns the object that `kubectl apply` would store, with defaults, without storing it."""
    shown = cluster.kubectl.run("apply", "--dry-run=server", "-o", "json", "-f", "-", text=json.dumps(item))
    accepted: dict[str, Any] = json.loads(shown)
    return accepted


@pytest.mark.parametrize("case", corpus_files.good(), ids=str)
def test_valid_objects_are_accepted_and_get_defaults(cluster: Cluster, case: Case) -> None:
    accepted = try_out(cluster, case.object)
    if case.becomes is not None:
        assert accepted["spec"] == case.becomes


@pytest.mark.parametrize("case", corpus_files.bad(), ids=str)
def test_invalid_objects_are_rejected_with_a_reason(cluster: Cluster, case: Case) -> None:
    assert case.refused is not None
    with pytest.raises(CommandFailedError) as refused:
        try_out(cluster, case.object)
    assert re.search(case.refused, refused.value.printed)


@pytest.fixture
def config(cluster: Cluster) -> Iterator[str]:
    """The name of a config in grouped mode."""
    name = "test-objects"
    spec = {**NO_NODES, "groupBy": "socket", "reservedCPUs": "0-1"}
    cluster.kubectl.apply(
        {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuDriverConfig", "metadata": {"name": name}, "spec": spec}
    )
    yield name
    cluster.kubectl.delete("cpudriverconfig", name)


def test_a_one_line_edit_of_mode_is_valid(cluster: Cluster, config: str) -> None:
    cluster.kubectl.run(
        "patch", "cpudriverconfig", config, "--type=merge", "--patch", '{"spec": {"mode": "individual"}}'
    )
    assert cluster.kubectl.get("cpudriverconfig", config)["spec"]["mode"] == "individual"


def test_a_config_is_shown_with_its_columns(cluster: Cluster, config: str) -> None:
    header, row = cluster.kubectl.run("get", "cpucfg", config).splitlines()
    assert header.split() == ["NAME", "MODE", "GROUPBY", "RESERVED", "NODES", "APPLIED", "FAILED", "AVAILABLE", "AGE"]
    assert row.split()[:4] == [config, "grouped", "socket", "0-1"]
    wide = cluster.kubectl.run("get", "cpucfg", config, "-o", "wide").splitlines()[0]
    assert wide.split()[-4:] == ["STRATEGY", "PRIORITY", "MEMORY", "PROMISED"]


def test_the_nodes_cpu_node_is_shown_with_its_columns(cluster: Cluster) -> None:
    header, row = cluster.kubectl.run("get", "cpun", cluster.node.name).splitlines()
    *columns, ready, age = header.split()
    assert columns == ["NAME", "CONFIG", "MODE", "CPUS", "RESERVED", "EXCLUSIVE", "CLAIMS", "PHASE"]
    assert (ready, age) == ("AGENT-READY", "AGE")
    assert cluster.node.name in row
    wide = cluster.kubectl.run("get", "cpun", cluster.node.name, "-o", "wide").splitlines()[0]
    assert wide.split()[-3:] == ["SHARED", "RUNTIME", "VERSION"]


@pytest.mark.parametrize("field", ["cpucfg.spec.rollout.maxUnavailable", "cpun.status.phase"])
def test_fields_are_explained(cluster: Cluster, field: str) -> None:
    explained = cluster.kubectl.run("explain", field)
    assert len(explained.partition("DESCRIPTION:")[2].split()) > 10


@pytest.mark.parametrize("example", doc_manifests.shown(), ids=str)
def test_manifests_in_the_documents_are_accepted(cluster: Cluster, example: Shown) -> None:
    try_out(cluster, example.manifest)

"""The chart's config: what is read from its manifest, and when it is left alone."""

from typing import Any

import pytest

from dracpu_operator.decide.default_config import Action, decide, read_manifest
from dracpu_operator.errors import ManifestError

GOOD = """
apiVersion: dra.cpu/v1alpha1
kind: CpuDriverConfig
metadata: {name: default, labels: {a: b}, resourceVersion: "7", uid: x}
spec: {reservedCPUs: "0"}
"""


def entry(manager: str, *fields: str, operation: str = "Update", **others: Any) -> dict[str, Any]:
    owned: dict[str, Any] = {"f:metadata": {"f:labels": {}}} | (
        {"f:spec": {f"f:{field}": {} for field in fields}} if fields else {}
    )
    return {"manager": manager, "operation": operation, "time": "2026-01-02T03:04:05Z", "fieldsV1": owned, **others}


CHART = entry("dracpu-chart", "reservedCPUs", operation="Apply")


def decided(*entries: dict[str, Any]) -> Action:
    return decide({"metadata": {"name": "default", "managedFields": list(entries)}}).action


def test_a_missing_config_is_created() -> None:
    assert decide(None).action is Action.CREATE


def test_a_config_that_only_the_chart_has_written_is_updated() -> None:
    assert decided(CHART) is Action.UPDATE


@pytest.mark.parametrize(
    "other",
    [
        entry("dracpu-operator", "mode", operation="Apply", subresource="status"),
        entry("kubectl-annotate"),
        {"manager": "odd", "operation": "Update"},
    ],
    ids=["status", "metadata", "nothing"],
)
def test_a_manager_of_other_fields_has_not_edited_the_spec(other) -> None:
    assert decided(CHART, other) is Action.UPDATE


@pytest.mark.parametrize(
    "other",
    [
        entry("kubectl-edit", "mode"),
        entry("kubectl-client-side-apply", "reservedCPUs"),
        entry("argocd-controller", "priority", operation="Apply"),
        entry("dracpu-chart", "mode"),  # an update in the chart's name is not the chart's
    ],
    ids=lambda other: other["manager"],
)
def test_a_config_whose_spec_somebody_has_written_is_left_alone_and_the_manager_is_named(other) -> None:
    decision = decide({"metadata": {"managedFields": [CHART, other]}})
    assert decision.action is Action.LEAVE
    assert decision.reason == f"its spec was written by {other['manager']} (2026-01-02T03:04:05Z)"


@pytest.mark.parametrize("metadata", [{}, {"managedFields": []}, {"managedFields": [entry("kubectl-label")]}])
def test_a_config_that_the_chart_did_not_create_is_left_alone(metadata) -> None:
    assert decide({"metadata": metadata}).action is Action.LEAVE


def test_a_manifest_is_reduced_to_the_fields_that_the_chart_sets() -> None:
    assert read_manifest(GOOD) == {
        "apiVersion": "dra.cpu/v1alpha1",
        "kind": "CpuDriverConfig",
        "metadata": {"name": "default", "labels": {"a": "b"}},
        "spec": {"reservedCPUs": "0"},
    }
    assert read_manifest(GOOD.replace('spec: {reservedCPUs: "0"}', "spec:"))["spec"] == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "is not YAML"),
        ("", "has 0 objects"),
        (f"{GOOD}\n---\n{GOOD}", "has 2 objects"),
        ("just words", "is not a CpuDriverConfig"),
        (GOOD.replace("v1alpha1", "v9"), "is not a CpuDriverConfig of dra.cpu/v1alpha1"),
        (GOOD.replace("name: default, ", ""), "has no metadata.name"),
        (GOOD.replace("name: default, ", "name: 5, "), "has no metadata.name"),
    ],
)
def test_a_file_that_is_not_a_manifest_is_refused_with_the_reason(text, why) -> None:
    with pytest.raises(ManifestError, match=why):
        read_manifest(text)

"""The chart's config: what is read from a file, and when it is left alone."""

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
        {"f:spec": {f"f:{one}": {} for one in fields}} if fields else {}
    )
    return {"manager": manager, "operation": operation, "time": "2026-01-02T03:04:05Z", "fieldsV1": owned, **others}


CHART = entry("dracpu-chart", "reservedCPUs", operation="Apply")


def decided(*entries: dict[str, Any]) -> Action:
    return decide({"metadata": {"name": "default", "managedFields": list(entries)}}).action


def test_a_config_that_is_not_there_is_made() -> None:
    assert decide(None).action is Action.CREATE


def test_a_config_that_only_the_chart_has_written_follows_it() -> None:
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
def test_who_writes_no_spec_has_not_edited_it(other) -> None:
    assert decided(CHART, other) is Action.UPDATE


@pytest.mark.parametrize(
    "other",
    [
        entry("kubectl-edit", "mode"),
        entry("kubectl-client-side-apply", "reservedCPUs"),
        entry("argocd-controller", "priority", operation="Apply"),
        entry("dracpu-chart", "mode"),  # an update in the chart's name is not the chart's
    ],
    ids=lambda one: one["manager"],
)
def test_who_writes_the_spec_keeps_it_from_then_on_and_is_named(other) -> None:
    decision = decide({"metadata": {"managedFields": [CHART, other]}})
    assert decision.action is Action.LEAVE
    assert decision.reason == f"its spec was written by {other['manager']} (2026-01-02T03:04:05Z)"


@pytest.mark.parametrize("metadata", [{}, {"managedFields": []}, {"managedFields": [entry("kubectl-label")]}])
def test_a_config_of_somebody_else_is_left_alone(metadata) -> None:
    assert decide({"metadata": metadata}).action is Action.LEAVE


def test_of_a_manifest_counts_what_the_chart_has_a_say_in() -> None:
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
def test_what_is_no_manifest_says_why(text, why) -> None:
    with pytest.raises(ManifestError, match=why):
        read_manifest(text)

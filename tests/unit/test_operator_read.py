"""Objects of the API server become records."""

from typing import Any

import pytest
from fleets import config
from hypothesis import given
from node_specs import settings as any_settings

from dracpu_api.conditions import Phase
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Mode, Settings
from dracpu_operator.known.read import read_cpu_node, read_node, revision_of

METADATA: dict[str, Any] = {"name": "x", "uid": "u", "resourceVersion": "7", "generation": 1}


def test_a_node_is_reduced_to_its_name_uid_and_labels() -> None:
    read = read_node({"metadata": METADATA})
    assert (read.name, read.uid, read.version, read.labels) == ("x", "u", 7, {})


def test_settings_have_neither_selector_nor_priority_nor_rollout() -> None:
    read = config(mode="individual", reservedCPUs="3,1-2", priority=5, rollout={"paused": True}).wanted
    assert read is not None
    assert read.settings == Settings(mode=Mode.INDIVIDUAL, reserved_cpus=CpuSet([1, 2, 3]))


def test_the_revision_depends_on_the_settings_alone() -> None:
    def revision(**spec: Any) -> str:
        wanted = config(**spec).wanted
        assert wanted is not None
        return wanted.revision

    assert revision(reservedCPUs="0,1") == revision(reservedCPUs="0-1", priority=3, rollout={"paused": True})
    assert revision(reservedCPUs="0-1") != revision(reservedCPUs="0-2")
    assert revision() == "ea047818bc560e38"  # one that changes with a new version would change every node


@given(any_settings, any_settings)
def test_revisions_are_equal_when_settings_are(settings, other) -> None:
    assert (revision_of(settings) == revision_of(other)) == (settings == other)
    assert 1 <= len(revision_of(settings)) <= 63


@pytest.mark.parametrize(
    "spec", [{"mode": "other"}, {"reservedCPUs": "5-2"}, {"new": 1}, {"rollout": {"paused": "yes"}}]
)
def test_a_config_that_is_not_valid_is_read_with_its_problems(spec) -> None:
    read = config(**spec)
    assert read.wanted is None
    assert read.problems


def test_a_status_of_a_newer_version_does_not_make_a_config_invalid() -> None:
    assert config(status={"new": "field"}).wanted is not None


@pytest.mark.parametrize("raw", [{}, {"spec": {"revision": 1}}, {"spec": {"new": True}, "status": {}}])
def test_a_cpu_node_that_cannot_be_decoded_is_recorded_nevertheless(raw) -> None:
    read = read_cpu_node({"metadata": METADATA, **raw})
    assert read.spec is None
    assert read.phase is None


def test_cpus_are_counted_once_and_are_available_only_when_settings_are_applied() -> None:
    status = {
        "phase": "Ready",
        "topology": {"counts": {"cpus": 8}},
        "cpus": {"reserved": "0-3", "exclusive": "2-4", "shared": "5-7"},
    }
    read = read_cpu_node({"metadata": METADATA, "status": {**status, "appliedRevision": "r"}}).cpus
    assert (read.total, read.reserved, read.exclusive, read.available) == (8, 4, 3, 3)
    assert read_cpu_node({"metadata": METADATA, "status": status}).cpus.available == 0


def test_a_phase_of_a_newer_agent_counts_as_pending() -> None:
    assert read_cpu_node({"metadata": METADATA, "status": {"phase": "Resting"}}).phase is Phase.PENDING


def test_long_messages_of_an_agent_are_cut() -> None:
    condition = {"type": "SlicesPublished", "status": "False", "message": "x" * 10_000, "lastTransitionTime": "t"}
    refused = {"type": "ConfigApplied", "status": "False", "message": "y" * 10_000}
    read = read_cpu_node({"metadata": METADATA, "status": {"phase": "Failed", "conditions": [condition, refused]}})
    assert [len(trouble.message) for trouble in read.troubles] == [len(read.failure)] == [256]


def test_a_condition_without_a_message_is_reported_by_its_type() -> None:
    condition = {"type": "StateHealthy", "status": "False"}
    read = read_cpu_node({"metadata": METADATA, "status": {"phase": "Ready", "conditions": [condition]}})
    assert [(trouble.since, trouble.message) for trouble in read.troubles] == [("", "StateHealthy is False")]

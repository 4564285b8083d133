"""When a CpuNode's status is written, and the transition times of its conditions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.cluster.status_plan import Written, due_in, status_patch, with_transition_times
from dracpu_api.merge_patch import difference
from dracpu_sandbox.apiserver.patches import merge_patched


def status(ready: str = "True", *, message: str = "", phase: str = "Ready", claims: int = 0) -> dict[str, Any]:
    condition = {"type": "ConfigApplied", "status": ready, "reason": "R" + ready, "message": message}
    return {"phase": phase, "appliedRevision": "r1", "conditions": [condition], "claims": claims}


def due(
    desired: dict[str, Any], sent: dict[str, Any], since: float, stored: dict[str, Any] | None = None
) -> float | None:
    written = Written(sent, sent if stored is None else stored)
    return due_in(desired, written.stored, written, since_write=since, interval=5.0)


def test_an_unchanged_status_is_not_written_after_a_restart() -> None:
    current = with_transition_times(status(), {}, "2026-01-01T00:00:00Z")
    assert due_in(status(), current, None, since_write=None, interval=5.0) is None


def test_the_first_difference_is_written_at_once() -> None:
    assert due_in(status(), {}, None, since_write=None, interval=5.0) == 0


def test_counts_and_messages_wait_for_the_interval() -> None:
    assert due(status(claims=1), status(), since=2.0) == 3.0
    assert due(status(message="another message"), status(), since=2.0) == 3.0
    assert due(status(claims=1), status(), since=5.0) == 0


@pytest.mark.parametrize(
    "desired",
    [status("False"), status(phase="Draining"), status() | {"appliedRevision": "r2"}, status() | {"conditions": []}],
)
def test_an_urgent_change_is_written_at_once(desired: dict[str, Any]) -> None:
    assert due(desired, status(), since=0.1) == 0


def test_a_change_of_a_reason_alone_is_written_at_once() -> None:
    other = status()
    other["conditions"][0]["reason"] = "Other"
    assert due(other, status(), since=0.1) == 0


def test_fields_that_the_server_prunes_are_not_written_again() -> None:
    assert due(status(claims=1), status(claims=1), since=100.0, stored=status() | {"claims": None}) is None


def test_a_status_that_others_changed_is_restored_after_the_interval() -> None:
    written = Written(status(), status())
    assert due_in(status(), status(phase="Failed"), written, since_write=1.0, interval=5.0) == 4.0


def test_the_order_of_conditions_does_not_matter() -> None:
    first = {"type": "A", "status": "True"}
    second = {"type": "B", "status": "True"}
    assert due({"conditions": [first, second]}, {"conditions": [second, first]}, since=100.0) is None


def test_the_fields_of_other_writers_are_neither_written_nor_deleted() -> None:
    current = status() | {"agent": {"ready": True}, "ofANewerVersion": 1}
    assert due_in(status(), current, None, since_write=None, interval=5.0) is None
    assert (
        due_in(
            status(), current | {"agent": {"ready": False}}, Written(status(), current), since_write=9.0, interval=5.0
        )
        is None
    )
    assert status_patch(status(claims=1), current) == {"claims": 1}


def test_the_agent_deletes_a_field_of_its_own() -> None:
    assert status_patch(status(), status() | {"ignoredSettings": ["settings.turbo"]}) == {"ignoredSettings": None}


def test_settings_that_begin_to_be_ignored_are_reported_at_once() -> None:
    assert due(status() | {"ignoredSettings": ["settings.turbo"]}, status(), since=0.1) == 0


values = st.sampled_from(["True", "False", "Unknown"])


@given(st.dictionaries(st.sampled_from("ABC"), values), st.dictionaries(st.sampled_from("ABC"), values))
def test_a_transition_time_changes_exactly_when_the_status_does(before: dict[str, str], after: dict[str, str]) -> None:
    def conditions(statuses: dict[str, str]) -> dict[str, Any]:
        return {"conditions": [{"type": kind, "status": value} for kind, value in statuses.items()]}

    current = with_transition_times(conditions(before), {}, "then")
    written = with_transition_times(conditions(after), current, "now")
    assert {condition["type"]: condition["lastTransitionTime"] for condition in written["conditions"]} == {
        kind: "then" if before.get(kind) == value else "now" for kind, value in after.items()
    }


json_values = st.recursive(
    st.integers(0, 2) | st.text("ab", max_size=1) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
statuses = st.dictionaries(st.sampled_from("abc"), json_values)


@given(statuses, statuses)
def test_the_patch_turns_any_status_into_the_desired_one(desired: dict[str, Any], current: dict[str, Any]) -> None:
    assert merge_patched(current, difference(desired, current)) == desired


@given(statuses)
def test_equal_statuses_have_an_empty_patch(current: dict[str, Any]) -> None:
    assert difference(current, current) == {}

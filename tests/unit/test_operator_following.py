"""For how long claims are followed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fleets import cpu_node
from hypothesis import given
from hypothesis import strategies as st

from dracpu_api.settings import OutstandingClaim, OutstandingDevice
from dracpu_operator.decide.following import Following
from dracpu_operator.decide.records import CpuNode
from dracpu_operator.decide.times import TIME_FORMAT

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
CLAIM = OutstandingClaim("u1", "default", "c", (OutstandingDevice("cpudevnuma000", 2),))
MINUTES = 30


def ago(minutes: float) -> str:
    return (NOW - timedelta(minutes=minutes)).strftime(TIME_FORMAT)


def changed(minutes: float, **others: Any) -> CpuNode:
    """Returns a node that was given other devices so many minutes ago, and that has applied them by default."""
    return replace(cpu_node("n1", **others), devices_changed_at=ago(minutes))


RESTS = changed(60 * 24)


def following() -> Following:
    return Following(60.0 * MINUTES)


def is_needed(following: Following, *cpu_nodes: CpuNode, minutes: float = 0) -> bool:
    following.update(cpu_nodes, NOW + timedelta(minutes=minutes))
    return following.is_needed


def test_nothing_is_followed_when_no_node_has_changed_its_devices_for_long() -> None:
    assert not is_needed(following(), RESTS, replace(RESTS, uid="other"))


@pytest.mark.parametrize(
    "is_open",
    [
        changed(600, given="r2", applied="r1"),
        changed(600, given="r2", applied="r1", phase="Settling"),
        changed(600, phase="Settling"),
        changed(600, phase="Draining", outstanding=(CLAIM,)),
        changed(600, given="r2", applied=None, phase="Failed"),
    ],
)
def test_a_node_is_followed_until_its_agent_has_applied_the_change_and_no_claim_is_outstanding(
    is_open: CpuNode,
) -> None:
    followed = following()
    assert is_needed(followed, RESTS, is_open)
    assert followed.ends_at is None
    assert is_needed(followed, RESTS, is_open, minutes=10_000)


def test_a_node_is_followed_for_half_an_hour_after_it_has_applied_the_change() -> None:
    followed, settling, done = following(), changed(0, given="r2", applied="r1"), changed(0, given="r2", applied="r2")
    assert is_needed(followed, settling, minutes=20)
    assert is_needed(followed, done, minutes=21)
    assert followed.ends_at == NOW + timedelta(minutes=21 + MINUTES)
    assert is_needed(followed, replace(done), minutes=50.9), "a report of the agent shortens nothing"
    assert not is_needed(followed, replace(done), minutes=51)
    assert followed.ends_at is None


def test_a_change_whose_node_answers_at_once_is_followed_for_as_long() -> None:
    followed = following()
    assert not is_needed(followed, RESTS)
    assert is_needed(followed, changed(0, given="r2", applied="r2"))
    assert followed.ends_at is not None
    assert followed.ends_at >= NOW + timedelta(minutes=MINUTES)


def test_a_new_process_follows_nodes_that_have_changed_their_devices_lately() -> None:
    assert is_needed(following(), changed(MINUTES))
    assert not is_needed(following(), changed(MINUTES + 6))


def test_a_new_process_allows_for_the_time_in_which_nodes_settle() -> None:
    settings = changed(MINUTES + 50).spec
    assert settings is not None
    slow = replace(changed(MINUTES + 50), spec=replace(settings, settle_seconds=3600))
    assert is_needed(following(), slow)


def test_a_new_process_counts_from_the_time_when_the_agent_became_ready_after_the_change() -> None:
    late = replace(changed(600), reported_agent={"ready": True, "since": ago(MINUTES)})
    assert is_needed(following(), late)
    assert not is_needed(following(), replace(late, reported_agent={"ready": True, "since": ago(MINUTES + 6)}))


def test_an_agent_that_restarts_later_begins_nothing() -> None:
    followed = following()
    assert not is_needed(followed, RESTS)
    assert not is_needed(followed, replace(RESTS, reported_agent={"ready": True, "since": ago(0)}))


@pytest.mark.parametrize("stored", ["", "yesterday", "2026-01-10", "2026-01-10T12:00:00"])
def test_where_the_time_of_the_change_is_not_known_it_counts_as_just_now(stored: str) -> None:
    followed, unknown = following(), replace(RESTS, devices_changed_at=stored)
    assert is_needed(followed, unknown)
    assert is_needed(followed, replace(unknown), minutes=MINUTES - 1)
    assert not is_needed(followed, unknown, minutes=MINUTES)


def test_the_time_of_the_last_settings_stands_in_for_the_time_of_a_change_of_devices() -> None:
    former = replace(RESTS, devices_changed_at="", given_at=ago(10))
    assert is_needed(following(), former)
    assert not is_needed(following(), replace(former, given_at=ago(MINUTES + 6)))


def test_a_node_whose_agent_has_never_reported_is_followed_for_a_limited_time() -> None:
    followed = following()
    assert is_needed(followed, changed(0, phase=None))
    assert not is_needed(followed, changed(0, phase=None), minutes=MINUTES + 6)


def test_claims_are_followed_after_a_change_that_could_not_be_written() -> None:
    followed = following()
    followed.update([RESTS], NOW, changes_devices=True)
    assert (followed.is_needed, followed.ends_at) == (True, NOW + timedelta(minutes=MINUTES))
    assert is_needed(followed, RESTS, minutes=MINUTES - 1)
    assert not is_needed(followed, RESTS, minutes=MINUTES)


def test_cpu_nodes_of_others_and_those_that_cannot_be_decoded_are_not_followed() -> None:
    strange = [changed(0, owner=None, outstanding=(CLAIM,)), replace(changed(0), spec=None)]
    assert not is_needed(following(), *strange)


STATES = st.sampled_from(
    [
        {"given": "r1", "applied": "r1"},
        {"given": "r2", "applied": "r1"},
        {"given": "r2", "applied": "r1", "phase": "Settling"},
        {"given": "r2", "applied": "r2"},
        {"given": "r2", "applied": "r2", "phase": "Draining", "outstanding": (CLAIM,)},
    ]
)


@given(st.lists(st.tuples(STATES, st.floats(0, 40), st.booleans()), min_size=1, max_size=12))
def test_claims_are_followed_for_the_whole_time_after_the_last_moment_at_which_a_node_was_changing(steps: Any) -> None:
    """Also when the operator is restarted in between: a node whose agent answers within minutes misses nothing."""
    followed, clock, given_at, open_until = following(), 0.0, -10_000.0, -10_000.0
    revision, was_open = "r1", False
    for state, minutes, restarts in steps:
        clock += minutes
        if state["given"] != revision:
            revision, given_at = state["given"], clock
        present = changed(-given_at, **state)
        open_now = state["applied"] != state["given"] or "outstanding" in state
        if restarts:
            followed = following()
            open_until, was_open = given_at, False  # what the former process saw is lost
        if open_now or was_open:
            open_until = clock
        was_open = open_now
        needed = is_needed(followed, present, minutes=clock)
        if open_now or clock < max(open_until, given_at) + MINUTES:
            assert needed
        if followed.ends_at is not None:
            assert needed
            assert followed.ends_at <= NOW + timedelta(minutes=clock + MINUTES + 6)

"""Delays of repairs, the limit of Events, and the view of slices between writes and watch."""

from typing import Any

from dracpu_agent.cluster.events import EventLimiter, Subject
from dracpu_agent.cluster.slices.repair_pace import RepairPace
from dracpu_agent.cluster.slices.view import SliceView


def test_the_first_repair_is_prompt_and_each_further_one_waits_longer() -> None:
    pace = RepairPace(first=0.5, cap=4, calm=60)
    now, delays = 100.0, []
    for _ in range(6):
        now += pace.delay(now)
        pace.record_write(now)
        delays.append(pace.delay(now))
    assert delays == [0, 0.5, 1, 2, 4, 4]


def test_after_a_calm_time_a_repair_is_prompt_again() -> None:
    pace = RepairPace(first=0.5, cap=4, calm=60)
    for now in (0.0, 1.0, 2.0, 63.0):
        pace.record_write(now)
    assert pace.delay(63.0) == 0


def test_a_new_desired_state_is_written_without_delay() -> None:
    pace = RepairPace(first=0.5, cap=4, calm=60)
    pace.hold(10.0, 600)
    assert pace.delay(20.0) == 590
    pace.reset()
    assert pace.delay(20.0) == 0


NODE = Subject.cpu_node("n1")


def test_a_repeated_event_is_sent_every_ten_minutes() -> None:
    limiter = EventLimiter(period=600)
    assert [limiter.allows(NODE, "ClaimReleased", "CPUs 2-3", now) for now in (0.0, 1.0, 599.0, 600.0, 601.0)] == [
        True,
        False,
        False,
        True,
        False,
    ]


def test_events_that_differ_in_note_or_subject_are_sent() -> None:
    limiter = EventLimiter()
    assert limiter.allows(NODE, "ClaimReleased", "CPUs 2-3", 0)
    assert limiter.allows(NODE, "ClaimReleased", "CPUs 4-5", 0)
    assert limiter.allows(Subject.cpu_node("n2"), "ClaimReleased", "CPUs 2-3", 0)


def test_events_about_one_subject_are_limited_without_effect_on_others() -> None:
    limiter = EventLimiter(per_subject=3)
    assert sum(limiter.allows(NODE, "Failed", f"try {number}", 0) for number in range(100)) == 3
    assert limiter.allows(Subject.cpu_node("n2"), "Failed", "try", 0)


def test_the_number_of_remembered_events_is_limited() -> None:
    limiter = EventLimiter(remembered=2)
    for number in range(4):
        assert limiter.allows(Subject.cpu_node(f"n{number}"), "Failed", "x", 0)
    assert limiter.allows(Subject.cpu_node("n0"), "Failed", "x", 0)  # the first one has been forgotten


def stored(name: str, uid: str, revision: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(revision)}}


def test_the_agents_writes_count_until_the_watch_has_caught_up() -> None:
    view = SliceView()
    view.replace({"a": stored("a", "u1", 5)}, 5, listed_at=0)
    view.record_write(stored("a", "u1", 8), at=1)
    view.record_write(stored("b", "u2", 9), at=2)
    view.replace({"a": stored("a", "u1", 8)}, 8, listed_at=0)
    assert view.slices() == [stored("a", "u1", 8), stored("b", "u2", 9)]
    view.replace({"a": stored("a", "u1", 8)}, 10, listed_at=0)  # b was deleted by others
    assert view.slices() == [stored("a", "u1", 8)]


def test_a_deleted_slice_that_the_watch_still_shows_is_ignored() -> None:
    view = SliceView()
    view.replace({"a": stored("a", "u1", 5)}, 5, listed_at=0)
    view.record_deletion("u1", at=1)
    view.replace({"a": stored("a", "u1", 6)}, 6, listed_at=0)
    assert view.slices() == []
    view.replace({"a": stored("a", "u3", 8)}, 8, listed_at=0)  # a new slice of the same name
    assert view.slices() == [stored("a", "u3", 8)]


def test_a_list_that_was_requested_after_a_write_counts_although_its_versions_are_lower() -> None:
    view = SliceView()
    view.replace({"a": stored("a", "u1", 5), "b": stored("b", "u2", 5)}, 5, listed_at=0)
    view.record_write(stored("a", "u1", 8), at=1)
    view.record_deletion("u2", at=1)
    restored = {"a": stored("a", "u1", 3), "b": stored("b", "u2", 3)}
    view.replace(restored, 4, listed_at=1)
    assert view.slices() == [stored("a", "u1", 8)], "the list may have been answered before the writes"
    view.replace(restored, 4, listed_at=2)
    assert view.slices() == [stored("a", "u1", 3), stored("b", "u2", 3)]

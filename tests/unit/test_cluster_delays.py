"""How often things are tried, repaired and told."""

from typing import Any

from dracpu_agent.cluster.events import EventLimiter, Subject
from dracpu_agent.cluster.slices.repair_pace import Pace
from dracpu_agent.cluster.slices.view import SliceView


def test_the_first_repair_is_prompt_and_the_next_ones_wait_longer_each() -> None:
    pace = Pace(first=0.5, cap=4, calm=60)
    now, waits = 100.0, []
    for _ in range(6):
        now += pace.wait(now)
        pace.wrote(now)
        waits.append(pace.wait(now))
    assert waits == [0, 0.5, 1, 2, 4, 4]


def test_what_was_calm_for_long_is_repaired_promptly_again() -> None:
    pace = Pace(first=0.5, cap=4, calm=60)
    for now in (0.0, 1.0, 2.0, 63.0):
        pace.wrote(now)
    assert pace.wait(63.0) == 0


def test_a_new_wish_waits_for_nothing() -> None:
    pace = Pace(first=0.5, cap=4, calm=60)
    pace.hold(10.0, 600)
    assert pace.wait(20.0) == 590
    pace.told()
    assert pace.wait(20.0) == 0


CLAIM = Subject.claim("default", "c", "u1")


def test_the_same_event_is_told_every_ten_minutes() -> None:
    limiter = EventLimiter(period=600)
    assert [limiter.allows(CLAIM, "PrepareFailed", "no CPUs", now) for now in (0.0, 1.0, 599.0, 600.0, 601.0)] == [
        True,
        False,
        False,
        True,
        False,
    ]


def test_another_note_or_another_subject_is_another_event() -> None:
    limiter = EventLimiter()
    assert limiter.allows(CLAIM, "PrepareFailed", "no CPUs", 0)
    assert limiter.allows(CLAIM, "PrepareFailed", "offline CPUs", 0)
    assert limiter.allows(Subject.pod("default", "p", "u2"), "PrepareFailed", "no CPUs", 0)


def test_one_subject_cannot_flood_the_others_out() -> None:
    limiter = EventLimiter(per_subject=3)
    assert sum(limiter.allows(CLAIM, "Failed", f"try {number}", 0) for number in range(100)) == 3
    assert limiter.allows(Subject.cpu_node("n1"), "Failed", "try", 0)


def test_the_memory_of_events_is_bounded() -> None:
    limiter = EventLimiter(remembered=2)
    for number in range(4):
        assert limiter.allows(Subject.cpu_node(f"n{number}"), "Failed", "x", 0)
    assert limiter.allows(Subject.cpu_node("n0"), "Failed", "x", 0)  # forgotten rather than kept for ever


def stored(name: str, uid: str, revision: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(revision)}}


def test_own_writes_count_until_the_watch_has_caught_up() -> None:
    view = SliceView()
    view.see({"a": stored("a", "u1", 5)}, 5)
    view.wrote(stored("a", "u1", 8))
    view.wrote(stored("b", "u2", 9))
    view.see({"a": stored("a", "u1", 8)}, 8)
    assert view.slices() == [stored("a", "u1", 8), stored("b", "u2", 9)]
    view.see({"a": stored("a", "u1", 8)}, 10)  # somebody deleted b
    assert view.slices() == [stored("a", "u1", 8)]


def test_a_late_sight_of_a_deleted_object_does_not_bring_it_back() -> None:
    view = SliceView()
    view.see({"a": stored("a", "u1", 5)}, 5)
    view.deleted("u1")
    view.see({"a": stored("a", "u1", 6)}, 6)
    assert view.slices() == []
    view.see({"a": stored("a", "u3", 8)}, 8)  # a new one of the same name
    assert view.slices() == [stored("a", "u3", 8)]

"""At most one operator leads, also when clocks differ, requests are delayed or processes pause. When the leader fails,
another operator leads after a limited time."""

import heapq
import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracpu_operator.decide.leadership import Candidate, Lease, LeasePace, Step

PACE = LeasePace()


def no_jitter(_: float, most: float) -> float:
    return most


def candidate(identity: str = "me", *, able: bool = True) -> Candidate:
    made = Candidate(identity, PACE, no_jitter)
    if able:
        made.enable(0.0)
    return made


def standby(lease: Lease, now: float = 0.0) -> Candidate:
    """Returns an operator that has seen the Lease for the first time just now."""
    made = candidate()
    made.saw(lease, now)
    return made


def leader(sent: float = 0.0) -> Candidate:
    """Returns an operator whose write was sent at a time and answered half a second later."""
    made = candidate()
    made.saw(None, sent)
    made.wrote(Lease("1", "me", PACE.lease), sent, sent + 0.5)
    return made


def test_an_operator_looks_before_it_writes() -> None:
    assert candidate().step(0.0) is Step.LOOK


@pytest.mark.parametrize("lease", [None, Lease("7", "", 1), Lease("7", "me", 10)], ids=["missing", "released", "own"])
def test_a_lease_that_names_nobody_else_is_taken_at_once(lease: Lease | None) -> None:
    made = candidate()
    made.saw(lease, 5.0)
    assert made.step(5.0) is Step.WRITE


def test_a_lease_that_somebody_deletes_while_another_holds_it_is_taken_when_it_would_have_expired() -> None:
    made = standby(Lease("7", "other", 10))
    made.saw(None, 4.0)
    assert made.step(9.9) is Step.LOOK
    made.saw(None, 9.9)
    assert made.step(10.0) is Step.WRITE


def test_a_lease_whose_holder_somebody_has_removed_is_taken_after_its_duration() -> None:
    made = standby(Lease("7", "other", 10))
    made.saw(Lease("8", "", 10), 4.0)
    assert made.step(13.9) is Step.LOOK
    made.saw(Lease("8", "", 10), 13.9)
    assert made.step(14.0) is Step.WRITE


def test_a_lease_of_another_is_taken_when_it_has_not_changed_for_its_duration() -> None:
    made = standby(Lease("7", "other", 10))
    assert made.step(0.4) is Step.WAIT
    assert made.step(9.9) is Step.LOOK
    made.saw(Lease("7", "other", 10), 9.9)
    assert made.due == pytest.approx(10.0), "it acts at the moment of the expiry"
    assert made.step(10.0) is Step.WRITE


def test_each_change_of_the_lease_starts_the_duration_anew() -> None:
    made = standby(Lease("7", "other", 10))
    made.saw(Lease("8", "other", 10), 9.9)
    assert made.step(19.8) is Step.LOOK
    assert made.step(19.95) is Step.WRITE


def test_the_duration_is_the_one_that_the_holder_has_written() -> None:
    assert standby(Lease("7", "other", 30)).step(29.0) is Step.LOOK
    assert standby(Lease("7", "other", 0)).step(PACE.lease - 0.1) is Step.LOOK, "its own where the Lease has none"


def test_an_operator_that_does_not_know_enough_yet_watches_the_lease_and_does_not_take_it() -> None:
    made = candidate(able=False)
    made.saw(Lease("7", "other", 10), 0.0)
    assert made.step(20.0) is Step.LOOK
    made.saw(Lease("7", "other", 10), 20.0)
    assert made.step(20.0) is Step.WAIT
    made.enable(20.1)
    assert made.step(20.1) is Step.WRITE, "the time before counts"


def test_the_leadership_lasts_from_the_moment_at_which_the_write_was_sent() -> None:
    made = leader(sent=100.0)
    assert made.seconds_left(100.5) == pytest.approx(PACE.deadline - 0.5)
    assert made.step(100.0 + PACE.deadline - 0.1) is Step.WRITE
    assert made.step(100.0 + PACE.deadline) is Step.LOST


def test_a_leader_renews_and_tries_again_soon_after_a_failure() -> None:
    made = leader()
    assert made.step(PACE.renew - 0.1) is Step.WAIT
    assert made.step(PACE.renew) is Step.WRITE
    made.failed(3.5, changed=False)
    assert made.step(3.5 + PACE.retry - 0.1) is Step.WAIT
    assert made.step(3.5 + PACE.retry) is Step.WRITE
    made.wrote(Lease("2", "me", 10), 4.0, 4.1)
    assert made.step(4.0 + PACE.deadline - 0.1) is Step.WRITE


def test_a_leader_whose_answer_was_lost_finds_its_own_write_and_stays() -> None:
    made = leader()
    made.failed(1.6, changed=True)
    assert made.step(2.1) is Step.LOOK
    made.saw(Lease("2", "me", 10), 2.2)
    assert made.step(2.2) is Step.WRITE


def test_a_leader_that_finds_another_one_stops_at_once() -> None:
    made = leader()
    made.failed(1.6, changed=True)
    made.saw(Lease("2", "other", 10), 2.2)
    assert made.step(2.2) is Step.LOST
    assert made.seconds_left(2.2) == 0


def test_an_operator_that_has_lost_or_resigned_never_leads_again() -> None:
    lost, resigned = leader(), leader()
    resigned.resign()
    assert lost.step(50.0) is resigned.step(1.0) is Step.LOST


def test_an_answer_that_comes_too_late_makes_no_leader() -> None:
    made = candidate()
    made.saw(None, 0.0)
    made.wrote(Lease("1", "me", 10), 0.0, 7.5)
    assert made.seconds_left(7.5) == 0
    assert made.step(7.5) is Step.WRITE


def test_the_leader_ends_before_others_may_take_over_and_they_do_within_15_seconds() -> None:
    assert PACE.deadline < PACE.lease
    assert PACE.look + PACE.lease <= 10, "5 s remain to bring the knowledge up to date"
    attempts = [PACE.renew]
    while attempts[-1] + PACE.request + PACE.retry < PACE.deadline:
        attempts.append(attempts[-1] + PACE.request + PACE.retry)
    assert len(attempts) >= 2, "one renewal without an answer does not end the leadership"


# ---- any interleaving

# what happens to the requests of one process during a time: the seconds until the API server executes a request, and
# from then until the answer arrives
NEVER = float("inf")
NETWORKS = {
    "good": (0.01, 0.01),
    "cut": (NEVER, NEVER),
    "answers are lost": (0.01, NEVER),
    "answers are late": (0.01, 2.4),
    "requests are late": (2.3, 0.01),
    "requests are executed when nobody waits for them any more": (12.0, NEVER),
}
STANDS_STILL = "stands still"  # the process: it is paused, or waits for its memory
RESIGNS = "resigns"
Phases = Sequence[tuple[float, str]]

phases = st.lists(
    st.tuples(st.sampled_from([0.5, 2.0, 4.0, 7.5, 11.0, 16.0]), st.sampled_from([*NETWORKS, STANDS_STILL, RESIGNS])),
    max_size=8,
)


class Process:
    """An operator with a clock and a fate of its own. It begins anew whenever its leadership has ended."""

    def __init__(self, world: "World", name: str, speed: float, fate: Phases) -> None:
        self.world, self.name, self.speed, self.fate = world, name, speed, fate
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        self.candidate = Candidate(f"{self.name}-{self.lives}", PACE, random.Random(self.lives).uniform)
        self.candidate.enable(self.clock())
        self.base: str | None = None
        self.world.after(0.0, partial(self.act, self.lives))

    def clock(self) -> float:
        return 1000.0 * len(self.name) + self.speed * self.world.time

    def now_happens(self) -> tuple[str, float]:
        """Returns what happens at the moment, and until when."""
        ends = 0.0
        for seconds, what in self.fate:
            ends += seconds
            if self.world.time < ends:
                return what, ends
        return "good", NEVER

    def act(self, life: int) -> None:
        if life != self.lives:
            return
        what, ends = self.now_happens()
        if what == STANDS_STILL:
            self.world.after(ends - self.world.time, partial(self.act, life))
            return
        candidate, now = self.candidate, self.clock()
        if what == RESIGNS and candidate.seconds_left(now):
            candidate.resign()
            self.world.after(0.01, partial(self.world.release, self.base))
            self.world.after(max(0.1, ends - self.world.time), self.begin)
            return
        step = candidate.step(now)
        if step is Step.LOST:
            self.world.after(0.3, self.begin)
        elif step is Step.WAIT:
            self.world.after((candidate.due - now) / self.speed + 1e-6, partial(self.act, life))
        else:
            self.send(step, *NETWORKS.get(what, NETWORKS["good"]))

    def send(self, step: Step, there: float, back: float) -> None:
        sent, life, base, name = self.clock(), self.lives, self.base, self.candidate.identity
        waited_for = [True]

        def execute() -> None:
            read = step is Step.LOOK
            lease = self.world.lease if read else self.world.write(name, base)
            changed = not read and lease is None
            self.world.after(back, lambda: finish(lease, changed=changed, answered=True))

        def finish(lease: Lease | None = None, *, changed: bool = False, answered: bool = False) -> None:
            if life != self.lives or not waited_for[0]:
                return
            what, ends = self.now_happens()
            if what == STANDS_STILL:  # it takes over the answer when it goes on
                again = partial(finish, lease, changed=changed, answered=answered)
                self.world.after(ends - self.world.time, again)
                return
            waited_for[0] = False
            if changed or not answered:
                self.candidate.failed(self.clock(), changed=changed)
            elif step is Step.LOOK:
                self.base = None if lease is None else lease.version
                self.candidate.saw(lease, self.clock())
            else:
                assert lease is not None
                self.base = lease.version
                self.candidate.wrote(lease, sent, self.clock())
            self.act(life)

        self.world.after(there, execute)
        self.world.after(PACE.request / self.speed, finish)


class World:
    """An API server with one Lease, and the order of events."""

    def __init__(self, fates: Sequence[Phases], speeds: Sequence[float]) -> None:
        self.time = 0.0
        self.lease: Lease | None = None
        self.leaders: list[str] = []  # in the order in which they were seen to lead
        self._version = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.processes = [
            Process(self, "p" * (number + 1), speed, fate)
            for number, (speed, fate) in enumerate(zip(speeds, fates, strict=True))
        ]

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self._count += 1
        if seconds != NEVER:
            heapq.heappush(self._events, (self.time + seconds, self._count, event))

    def write(self, holder: str, base: str | None) -> Lease | None:
        """Executes a write that is based on a version; returns None when the Lease has another one."""
        if base != (None if self.lease is None else self.lease.version):
            return None
        self._version += 1
        self.lease = Lease(str(self._version), holder, PACE.lease if holder else 1)
        return self.lease

    def release(self, base: str | None) -> None:
        self.write("", base)

    def delete(self) -> None:
        self.lease = None

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.time, _, event = heapq.heappop(self._events)
            event()
            self._check()

    def _check(self) -> None:
        leading = [p.candidate.identity for p in self.processes if p.candidate.seconds_left(p.clock())]
        assert len(leading) <= 1, f"{leading} at {self.time}"
        self.leaders += [name for name in leading if self.leaders[-1:] != [name]]


@settings(max_examples=400, deadline=None)
@given(st.lists(phases, min_size=3, max_size=3), st.lists(st.floats(0.85, 1.15), min_size=3, max_size=3))
def test_two_operators_never_lead_at_the_same_time(fates: list[Phases], speeds: list[float]) -> None:
    world = World(fates, speeds)
    world.run(until=200.0)
    assert any(process.candidate.seconds_left(process.clock()) for process in world.processes), "one leads at the end"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.85, 1.15), min_size=2, max_size=2), st.lists(st.floats(2.0, 100.0), min_size=1, max_size=5))
def test_nor_when_somebody_deletes_the_lease_after_all_have_seen_it(
    speeds: list[float], deletions: list[float]
) -> None:
    world = World([[], []], speeds)
    for moment in deletions:
        world.after(moment, world.delete)
    world.run(until=200.0)
    assert any(process.candidate.seconds_left(process.clock()) for process in world.processes), "one leads at the end"


def test_the_leadership_moves_on_when_the_leader_is_cut_off() -> None:
    world = World([[(5.0, "good"), (100.0, "cut")], [(2.0, "cut")]], [1.0, 1.0])
    world.run(until=40.0)
    assert world.leaders == ["p-1", "pp-1"]


# ---- liveness


@pytest.mark.parametrize("killed_at", [20 + moment / 20 for moment in range(45)])
def test_another_operator_takes_over_within_the_lease_and_one_look(killed_at: float) -> None:
    leader, successor = (Candidate(f"p{n}", PACE, random.Random(killed_at + n).uniform) for n in range(2))
    server: Lease | None = None
    for moment in range(2000):
        time = moment / 20
        for process in (leader, successor):
            if process is leader and time >= killed_at:
                continue
            process.enable(time)
            step = process.step(time)
            if step is Step.LOOK:
                process.saw(server, time)
                step = process.step(time)
            if step is Step.WRITE:
                server = Lease(str(moment), process.identity, PACE.lease)
                process.wrote(server, time, time)
        if successor.seconds_left(time):
            assert killed_at <= time <= killed_at + PACE.lease + PACE.look + 0.1
            return
    raise AssertionError("nobody took over")

"""The check of the cluster tests finds every moment at which a claim did not have its CPUs for itself."""

import json
from typing import Any

import pytest
from harness.exclusivity import Fault, Kind, Span, Verdict, judge
from harness.release import NAMESPACE
from harness.samples import SampleLogError, parse

CLAIM = "11111111-2222"
OTHER = "33333333-4444"


class Log:
    """Writes a log like the sampler's."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def found(self, at: float, name: str, *env: str, namespace: str = "ns", kind: str = "container") -> None:
        about = {"id": name, "kind": kind, "namespace": namespace, "pod": f"pod-{name}", "name": name, "env": env}
        self.lines.append({"at": at, "found": about})

    def state(self, at: float, name: str, cpus: str, *, allowed: str | None = None, **flags: bool) -> None:
        sets = {"cpus": cpus, "effective": cpus, "allowed": cpus if allowed is None else allowed}
        self.lines.append(
            {"at": at, "container": name, "state": {**sets, "running": True, "preparing": False, **flags}}
        )

    def gone(self, at: float, name: str) -> None:
        self.lines.append({"at": at, "gone": name})

    def prepared(self, at: float, claim: str, *env: str) -> None:
        self.lines.append({"at": at, "claim": claim, "env": env})

    def released(self, at: float, claim: str) -> None:
        self.lines.append({"at": at, "released": claim})

    def text(self, end: float) -> str:
        last = {"at": end, "readings": 20, "slowest": 0.06, "end": True}
        return "".join(json.dumps(line) + "\n" for line in [*self.lines, last])

    def verdict(self, end: float = 100, synchronized: tuple[float, ...] = ()) -> Verdict:
        return judge(parse(self.text(end)), synchronized)


@pytest.fixture
def log() -> Log:
    """An agent and a shared container run, and a container runs on the CPUs of its claim, all where they should."""
    made = Log()
    made.prepared(1, CLAIM, f"DRA_CPUSET_{CLAIM}=2-3")
    made.found(1, "agent", namespace=NAMESPACE)
    made.state(1, "agent", "4-7")
    made.found(1, "claimed", f"DRA_CPUSET_{CLAIM}=2-3")
    made.state(1, "claimed", "2-3")
    made.found(1, "shared")
    made.state(1, "shared", "4-7")
    return made


def spans(verdict: Verdict) -> list[tuple[Fault, tuple[float, float], str]]:
    """Returns the violations while an agent ran."""
    return [(item.fault, (item.span.start, item.span.end), str(item.cpus)) for item in verdict.violations]


OVERLAP = Fault(Kind.OVERLAP, "pod-shared/shared (shared)", "pod-claimed/claimed (claimed)")
ASTRAY = Fault(Kind.ASTRAY, "pod-claimed/claimed (claimed)")


def test_containers_that_run_where_they_should_violate_nothing(log: Log) -> None:
    log.gone(5, "claimed")
    log.released(6, CLAIM)
    log.state(7, "shared", "2-7")
    assert spans(log.verdict()) == []


def test_a_shared_container_on_a_cpu_of_a_running_claim_overlaps_until_it_has_left(log: Log) -> None:
    log.state(10, "shared", "3-7")
    log.state(12, "shared", "4-7")
    verdict = log.verdict()
    assert spans(verdict) == [(OVERLAP, (10, 12), "3")]
    assert verdict.longest(Kind.OVERLAP) == (2, 0)


def test_a_thread_that_may_use_more_than_its_cgroup_shows_overlaps(log: Log) -> None:
    log.state(10, "shared", "4-7", allowed="2,4-7")
    log.state(11, "shared", "4-7")
    assert spans(log.verdict()) == [(OVERLAP, (10, 11), "2")]


def test_a_violation_that_never_ends_lasts_until_the_end_of_the_log(log: Log) -> None:
    log.state(10, "shared", "2-7")
    assert spans(log.verdict(end=30)) == [(OVERLAP, (10, 30), "2-3")]


def test_an_overlap_begins_when_the_program_of_the_claim_starts(log: Log) -> None:
    log.state(2, "claimed", "", running=False)
    log.state(10, "shared", "2-7")
    log.state(11, "claimed", "2-3", allowed="", running=False, preparing=True)  # runc prepares it
    log.state(12, "claimed", "2-3")
    log.state(13, "shared", "4-7")
    assert spans(log.verdict()) == [(OVERLAP, (12, 13), "2-3")]


def test_an_overlap_ends_when_the_program_of_the_claim_has_ended(log: Log) -> None:
    log.state(10, "shared", "2-7")
    log.gone(11, "claimed")
    assert spans(log.verdict()) == [(OVERLAP, (10, 11), "2-3")]


def test_an_overlap_begins_when_the_program_of_the_other_container_starts(log: Log) -> None:
    log.found(10, "new")
    log.state(10, "new", "2-7", allowed="", running=False)
    log.state(11, "new", "2-7")
    log.gone(12, "new")
    fault = Fault(Kind.OVERLAP, "pod-new/new (new)", OVERLAP.other)
    assert spans(log.verdict()) == [(fault, (11, 12), "2-3")]


def test_a_claimed_container_is_astray_on_other_cpus_and_on_a_part_of_its_own(log: Log) -> None:
    log.state(10, "claimed", "2")
    log.state(11, "claimed", "2-3")
    log.state(12, "claimed", "0,2-3")
    log.state(13, "claimed", "2-3")
    assert spans(log.verdict()) == [(ASTRAY, (10, 11), "3"), (ASTRAY, (12, 13), "0")]


def test_two_claims_on_each_other_s_cpus_are_found_in_both_directions(log: Log) -> None:
    log.prepared(2, OTHER, f"DRA_CPUSET_{OTHER}=4")
    log.state(2, "shared", "5-7")
    log.state(2, "agent", "5-7")
    log.found(3, "other", f"DRA_CPUSET_{OTHER}=4")
    log.state(3, "other", "4")
    log.state(10, "other", "2-4")
    log.state(11, "other", "4")
    log.state(12, "claimed", "2-4")
    log.state(13, "claimed", "2-3")
    overlaps = [
        (fault.subject, fault.other, cpus) for fault, _, cpus in spans(log.verdict()) if fault.kind is Kind.OVERLAP
    ]
    one, two = ASTRAY.subject, "pod-other/other (other)"
    assert overlaps == [(two, one, "2-3"), (one, two, "4")]


def test_containers_of_one_claim_share_its_cpus(log: Log) -> None:
    log.found(10, "second", f"DRA_CPUSET_{CLAIM}=2-3")
    log.state(10, "second", "2-3")
    assert spans(log.verdict()) == []


def test_each_request_of_a_claim_belongs_to_the_containers_that_use_it(log: Log) -> None:
    log.prepared(2, OTHER, f"DRA_CPUSET_{OTHER}_a=4", f"DRA_CPUSET_{OTHER}_b=5")
    log.state(2, "shared", "6-7")
    log.state(2, "agent", "6-7")
    for name, cpus in (("a", "4"), ("b", "5")):
        log.found(3, name, f"DRA_CPUSET_{OTHER}_{name}={cpus}")
        log.state(3, name, cpus)
    assert spans(log.verdict()) == []
    log.state(4, "a", "4-5")
    log.state(5, "a", "4")
    kinds = [(fault.kind, cpus) for fault, _, cpus in spans(log.verdict())]
    assert kinds == [(Kind.OVERLAP, "5"), (Kind.ASTRAY, "5")]


def test_a_claim_that_gets_other_cpus_leaves_its_container_astray(log: Log) -> None:
    log.prepared(10, CLAIM, f"DRA_CPUSET_{CLAIM}=0-1")
    log.gone(11, "claimed")
    assert spans(log.verdict()) == [(ASTRAY, (10, 11), "0-3")]


def test_a_claim_that_was_released_too_early_still_protects_its_running_container(log: Log) -> None:
    log.released(10, CLAIM)
    log.state(11, "shared", "2-7")
    log.gone(12, "claimed")
    assert spans(log.verdict()) == [(OVERLAP, (11, 12), "2-3")]


def test_two_claims_with_a_common_cpu_are_found_before_any_container_runs(log: Log) -> None:
    log.prepared(10, OTHER, f"DRA_CPUSET_{OTHER}=3")
    log.released(12, OTHER)
    fault = Fault(Kind.GRANTED_TWICE, f"claim {CLAIM}", f"claim {OTHER}")
    assert spans(log.verdict()) == [(fault, (10, 12), "3")]


def test_the_pause_process_of_a_sandbox_is_not_counted(log: Log) -> None:
    log.found(10, "pause", kind="sandbox")
    log.state(10, "pause", "0-7")
    verdict = log.verdict()
    assert spans(verdict) == []
    assert "pause" not in verdict.log.containers


def test_violations_are_excused_until_the_next_agent_has_repaired_the_node(log: Log) -> None:
    log.state(10, "agent", "", running=False)
    log.state(11, "shared", "2-7")
    log.state(20, "agent", "4-7")
    log.state(40, "shared", "4-7")
    verdict = log.verdict(synchronized=(5, 24))
    assert verdict.absences == [Span(10, 25)]
    assert spans(verdict) == [(OVERLAP, (25, 40), "2-3")]
    assert [item.span for item in verdict.excused] == [Span(11, 25)]
    assert verdict.longest(Kind.OVERLAP) == (15, 14)


@pytest.fixture
def absence(log: Log) -> Log:
    """No agent runs from 10 to 24, with its repairs to 25; a container is being started meanwhile."""
    log.state(10, "agent", "", running=False)
    log.found(12, "young")
    log.state(12, "young", "", allowed="", running=False)
    log.state(20, "agent", "4-7")
    return log


YOUNG = Fault(Kind.OVERLAP, "pod-young/young (young)", OVERLAP.other)


def test_a_container_that_was_being_started_when_the_agent_came_back_is_moved_within_a_second(absence: Log) -> None:
    absence.state(30, "young", "2-7")
    absence.state(30.6, "young", "4-7")
    verdict = absence.verdict(synchronized=(5, 24))
    assert spans(verdict) == []
    assert [(item.fault, item.span) for item in verdict.excused] == [(YOUNG, Span(30, 30.6))]


def test_a_container_that_was_being_started_when_the_agent_came_back_overlaps_after_a_second(absence: Log) -> None:
    absence.state(30, "young", "2-7")
    absence.state(33, "young", "4-7")
    assert spans(absence.verdict(synchronized=(5, 24))) == [(YOUNG, (31, 33), "2-3")]


def test_a_container_that_starts_long_after_the_agent_came_back_is_not_excused(absence: Log) -> None:
    absence.state(60, "young", "2-7")
    absence.state(60.5, "young", "4-7")
    assert spans(absence.verdict(synchronized=(5, 24))) == [(YOUNG, (60, 60.5), "2-3")]


def test_a_claim_that_was_prepared_after_the_agent_came_back_is_not_excused(absence: Log) -> None:
    absence.prepared(26, OTHER, f"DRA_CPUSET_{OTHER}=7")
    absence.state(26, "shared", "4-6")
    absence.state(26, "agent", "4-6")
    absence.found(27, "pinned", f"DRA_CPUSET_{OTHER}=7")
    absence.state(27, "pinned", "7")
    absence.state(30, "young", "4-7")
    absence.state(30.6, "young", "4-6")
    fault = Fault(Kind.OVERLAP, YOUNG.subject, "pod-pinned/pinned (pinned)")
    assert spans(absence.verdict(synchronized=(5, 24))) == [(fault, (30, 30.6), "7")]


def test_only_the_container_itself_is_excused_while_it_is_moved(absence: Log) -> None:
    absence.state(30, "young", "4-7")
    absence.state(30.2, "shared", "2-7")
    absence.state(30.6, "shared", "4-7")
    assert spans(absence.verdict(synchronized=(5, 24))) == [(OVERLAP, (30.2, 30.6), "2-3")]


def test_a_container_whose_start_begins_after_the_agent_came_back_is_not_excused(absence: Log) -> None:
    absence.found(26, "late")
    absence.state(26, "late", "2-7")
    absence.gone(27, "late")
    fault = Fault(Kind.OVERLAP, "pod-late/late (late)", OVERLAP.other)
    assert spans(absence.verdict(synchronized=(5, 24))) == [(fault, (26, 27), "2-3")]


def test_a_claims_container_that_was_being_started_when_the_agent_came_back_is_not_excused(absence: Log) -> None:
    absence.prepared(13, OTHER, f"DRA_CPUSET_{OTHER}=7")
    absence.found(13, "pinned", f"DRA_CPUSET_{OTHER}=7")
    absence.state(13, "pinned", "", allowed="", running=False)
    absence.state(13, "shared", "4-6")
    absence.state(20, "agent", "4-6")
    absence.state(30, "pinned", "4-7")
    absence.state(30.5, "pinned", "7")
    faults = [(fault.kind, span) for fault, span, _ in spans(absence.verdict(synchronized=(5, 24)))]
    assert faults == [(Kind.ASTRAY, (30, 30.5))]


def test_an_agent_that_never_answers_synchronize_excuses_the_rest(log: Log) -> None:
    log.gone(10, "agent")
    log.state(11, "shared", "2-7")
    verdict = log.verdict(end=30, synchronized=(5,))
    assert spans(verdict) == []
    assert verdict.longest(Kind.OVERLAP) == (0, 19)
    assert "no agent for 20.0 s" in next(iter(verdict.lines()))


def test_a_violation_that_began_before_the_agent_ended_counts_until_then(log: Log) -> None:
    log.state(8, "shared", "2-7")
    log.gone(10, "agent")
    log.state(12, "shared", "4-7")
    assert spans(log.verdict(synchronized=(20,))) == [(OVERLAP, (8, 10), "2-3")]


def test_the_verdict_names_each_violation_with_its_time_and_cpus(log: Log) -> None:
    log.state(10, "shared", "3-7")
    log.state(12, "shared", "4-7")
    lines = list(log.verdict().lines())
    assert lines[0].startswith("containers: 3, with claims: 1, claims: 1; 20 readings in 99 s, at most 0.06 s apart")
    assert "longest overlap: 2.00 s with an agent, 0.00 s excused" in lines
    assert lines[-1] == (
        "overlap of 2.00 s, 9.00 s after the start: pod-shared/shared (shared) on CPUs 3 of "
        "pod-claimed/claimed (claimed)"
    )


def test_changes_of_one_moment_are_one_snapshot(log: Log) -> None:
    log.state(10, "shared", "2-7")
    log.gone(10, "claimed")
    assert spans(log.verdict()) == []
    assert [snapshot.at for snapshot in parse(log.text(20)).snapshots] == [1, 10]


def test_a_log_of_a_sampler_that_was_killed_is_incomplete(log: Log) -> None:
    text = log.text(20)
    assert parse(text).complete
    assert not parse(text[: text.rstrip().rindex("\n") + 1]).complete


@pytest.mark.parametrize("text", ["", '{"at": 1, "surprise": true}\n'], ids=["empty", "unknown line"])
def test_a_text_that_is_not_a_log_of_the_sampler_is_refused(text: str) -> None:
    with pytest.raises(SampleLogError):
        parse(text)

"""Decides from the log of a sampler whether claims had their CPUs for themselves at every moment, and for how long not.

- overlap: the program of a container may run on a CPU of another container's claim while that container's program
  exists. Before it exists, nobody uses the claim's CPUs, and the other containers may still be about to leave them.
- astray: the program of a container with a claim may run on a CPU that is not its own, or not on all of its own.
- granted twice: two prepared claims have a CPU in common.

Not counted are runc's own processes, which enter a container's cgroup before runc writes its cpuset, and the pause
process of a pod's sandbox, which sleeps and which neither the kubelet nor this driver pins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, permutations
from math import inf
from typing import Final

from dracpu_api.cpuset import CpuSet, union
from harness.samples import SampleLog, Snapshot, cpus_of

# An agent that has synchronized moves containers that were being started at that moment a little later: nothing reaches
# a container between the moment at which the runtime writes its OCI spec and the start of its program.
REPAIRED_AFTER: Final = 1.0  # seconds
# The agent refuses a start that comes later than this after it has synchronized.
STARTED_WITHIN: Final = 30.0  # seconds


class Kind(StrEnum):
    """What is wrong."""

    OVERLAP = "overlap"
    ASTRAY = "astray"
    GRANTED_TWICE = "granted twice"


@dataclass(frozen=True, slots=True)
class Span:
    """A time span, in seconds of the node's clock."""

    start: float
    end: float

    @property
    def length(self) -> float:
        """Its length in seconds."""
        return self.end - self.start

    def without(self, others: Iterable["Span"]) -> list["Span"]:
        """Returns the parts of this span that are in none of the others."""
        parts = [self]
        for other in others:
            before = [Span(part.start, min(part.end, other.start)) for part in parts]
            after = [Span(max(part.start, other.end), part.end) for part in parts]
            parts = [part for part in before + after if part.length > 0]
        return sorted(parts, key=lambda part: part.start)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at one moment: with which container or claim, and which other one it affects."""

    kind: Kind
    subject: str
    other: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """A fault that lasted for a span, with all CPUs that it concerned meanwhile."""

    fault: Fault
    span: Span
    cpus: CpuSet


@dataclass(frozen=True, slots=True)
class Verdict:
    """All violations on one node, divided by whether an agent ran and could prevent them."""

    log: SampleLog
    absences: Sequence[Span]
    violations: Sequence[Violation]
    excused: Sequence[
        Violation
    ]  # the parts within the spans without an agent, and of containers that it moves after them

    def longest(self, kind: Kind) -> tuple[float, float]:
        """Returns how long the longest violation of a kind lasted: of those that count, and of excused ones."""
        with_agent, without_agent = (
            max((violation.span.length for violation in found if violation.fault.kind is kind), default=0.0)
            for found in (self.violations, self.excused)
        )
        return with_agent, without_agent

    def lines(self) -> Iterator[str]:
        """Describes the verdict for a person."""
        log = self.log
        whole = Span(log.start, log.end)
        away = whole.length - sum(part.length for part in whole.without(self.absences))
        yield (
            f"containers: {len(log.containers)}, with claims: {len(log.claimed)}, claims: {len(log.claims)}; "
            f"{log.readings} readings in {log.end - log.start:.0f} s, at most {log.slowest:.2f} s apart; "
            f"no agent for {away:.1f} s, its ends: {len(self.absences)}"
        )
        for kind in Kind:
            with_agent, without_agent = self.longest(kind)
            yield f"longest {kind}: {with_agent:.2f} s with an agent, {without_agent:.2f} s excused"
        for title, found in (("", self.violations), ("excused: ", self.excused)):
            for violation in found:
                fault, span = violation.fault, violation.span
                yield (
                    f"{title}{fault.kind} of {span.length:.2f} s, {span.start - log.start:.2f} s after the start: "
                    f"{fault.subject} on CPUs {violation.cpus}{fault.other and f' of {fault.other}'}"
                )


def judge(log: SampleLog, synchronized: Iterable[float]) -> Verdict:
    """Finds all violations in a log; `synchronized` has the times at which the runtime had synchronized an agent."""
    absences = absences_of_agent(log, synchronized)
    late = late_repairs(log, absences)
    violations, excused = [], []
    for found in violations_in(log):
        excuses = late.get((found.fault.subject, found.fault.other), ())
        outside = found.span.without([*absences, *excuses])
        inside = found.span.without(outside)
        violations += [Violation(found.fault, span, found.cpus) for span in outside]
        excused += [Violation(found.fault, span, found.cpus) for span in inside]
    return Verdict(log, absences, violations, excused)


def absences_of_agent(log: SampleLog, synchronized: Iterable[float]) -> list[Span]:
    """Returns the spans without an agent: from the end of its processes until the next one has repaired the node."""
    times, spans = sorted(synchronized), []
    running_before = True
    for snapshot in log.snapshots:
        running = any(state.running and log.containers[uid].is_agent for uid, state in snapshot.states.items())
        if running_before and not running:
            answered = next((time for time in times if time > snapshot.at), inf)
            spans.append(Span(snapshot.at, answered + REPAIRED_AFTER))
        running_before = running
    return spans


def late_repairs(log: SampleLog, absences: Iterable[Span]) -> Mapping[tuple[str, str], list[Span]]:
    """Returns for each container without claims that was being started when an agent came back, and each container
    whose claim had been prepared before: the span in which the agent can move the former off the latter's CPUs."""
    repairs: dict[tuple[str, str], list[Span]] = {}
    for absence in absences:
        back = absence.end - REPAIRED_AFTER
        last = max((snapshot for snapshot in log.snapshots if snapshot.at <= back), key=lambda snapshot: snapshot.at)
        prepared = {name for variables in last.claims.values() for name in variables}
        owners = [
            str(other) for other in log.containers.values() if other.variables and prepared >= set(other.variables)
        ]
        for uid, state in last.states.items():
            container = log.containers[uid]
            if state.running or container.variables:
                continue
            later = (snapshot for snapshot in log.snapshots if back < snapshot.at <= back + STARTED_WITHIN)
            started = next((snapshot.at for snapshot in later if _is_running(snapshot, uid)), None)
            if started is not None:
                span = Span(started, started + REPAIRED_AFTER)
                for owner in owners:
                    repairs.setdefault((str(container), owner), []).append(span)
    return repairs


def _is_running(snapshot: Snapshot, uid: str) -> bool:
    return uid in snapshot.states and snapshot.states[uid].running


def violations_in(log: SampleLog) -> Iterator[Violation]:
    """Yields every violation in the order of their ends, whether or not an agent ran."""
    lasting: dict[Fault, tuple[float, CpuSet]] = {}
    for snapshot in log.snapshots:
        faults = faults_in(snapshot, log)
        for fault in [fault for fault in lasting if fault not in faults]:
            start, cpus = lasting.pop(fault)
            yield Violation(fault, Span(start, snapshot.at), cpus)
        for fault, cpus in faults.items():
            start, former = lasting.get(fault, (snapshot.at, cpus))
            lasting[fault] = (start, former | cpus)
    for fault, (start, cpus) in lasting.items():
        yield Violation(fault, Span(start, log.end), cpus)


def faults_in(snapshot: Snapshot, log: SampleLog) -> Mapping[Fault, CpuSet]:
    """Returns what is wrong at a moment, with the CPUs that it concerns."""
    faults: dict[Fault, CpuSet] = {}
    running = {uid: state for uid, state in snapshot.states.items() if state.running}
    own = {uid: _own_cpus(snapshot, log, uid) for uid in running}
    for (uid, state), (other, _) in permutations(running.items(), 2):
        faults[Fault(Kind.OVERLAP, str(log.containers[uid]), str(log.containers[other]))] = (
            state.allowed - own[uid]
        ) & own[other]
    for uid, state in running.items():
        if own[uid]:
            strange = (state.effective | state.allowed) - own[uid]
            missing = own[uid] - state.effective
            faults[Fault(Kind.ASTRAY, str(log.containers[uid]))] = strange | missing
    for (claim, cpus), (other, others) in combinations(sorted(snapshot.claims.items()), 2):
        faults[Fault(Kind.GRANTED_TWICE, f"claim {claim}", f"claim {other}")] = cpus_of(cpus) & cpus_of(others)
    return {fault: cpus for fault, cpus in faults.items() if cpus}


def _own_cpus(snapshot: Snapshot, log: SampleLog, uid: str) -> CpuSet:
    """Returns the CPUs of a container's claims, as their CDI files or else as its own environment name them."""
    prepared = {name: cpus for variables in snapshot.claims.values() for name, cpus in variables.items()}
    variables = log.containers[uid].variables
    return union(prepared.get(name, cpus) for name, cpus in variables.items())

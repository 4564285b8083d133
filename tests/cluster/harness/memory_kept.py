"""Decides from the log of a sampler whether claims of memory were kept at every moment at which an agent ran.

- limit: a container with claims of ordinary memory has no limit, or one above its claims, for longer than the runtime
  takes to resize it.
- place: such a container is not bound to the NUMA nodes of its claims, or has pages elsewhere.
- pages: a container may use another amount of hugepages than its claims; without claims, in a pod that has some: any.
- pages of the pod: the pod may use another amount than its containers' claims, for longer than a repair takes: the
  kubelet writes 0 with each resize, and the agent repairs this afterwards.
- promised: claims were promised more on a NUMA node than there is.

A container that was created while no agent ran gets its limits late and in steps, and those of its hugepages not before
it is created again, as the documentation describes: limits at once could harm it. So only its pod is judged.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harness.exclusivity import Span, absences_of_agent
from harness.samples import ORDINARY, PAGES, Container, Limits, Promises, SampleLog, Snapshot


class Kind(StrEnum):
    """The kinds of faults."""

    LIMIT = "limit"
    PLACE = "place"
    PAGES = "pages"
    PAGES_OF_POD = "pages of the pod"
    PROMISED = "promised"


# How long each kind may last while an agent runs. A repair takes milliseconds; emulated nodes are slow, also because
# of what else runs beside them. An agent that misses a change finds it half a minute later: that is too late.
# At a resize, runc first writes the limit of the container's spec and then that of the claim.
ALLOWED: Final[Mapping[Kind, float]] = {Kind.PAGES_OF_POD: 10.0, Kind.LIMIT: 10.0}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at one moment, of a container or a NUMA node."""

    kind: Kind
    subject: str


@dataclass(frozen=True, slots=True)
class Violation:
    """A fault that lasted for a span, and what was found at its start."""

    fault: Fault
    span: Span
    found: str


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """All faults on one node while an agent ran; `violations` are those that lasted for too long."""

    log: SampleLog
    faults: Sequence[Violation]

    @property
    def violations(self) -> list[Violation]:
        """The faults that must not be."""
        return [fault for fault in self.faults if fault.span.length > ALLOWED.get(fault.fault.kind, 0)]

    @property
    def containers(self) -> list[Container]:
        """The containers that have claims of memory."""
        return [container for container in self.log.containers.values() if container.promises]

    def lines(self) -> Iterator[str]:
        """Describes the verdict for a person."""
        claims = {uid for snapshot in self.log.snapshots for uid in snapshot.promises}
        states = [item for snapshot in self.log.snapshots for item in snapshot.states.items()]
        used = {uid for uid, state in states if state.memory.pages_on}
        figures = {"claims of memory": claims, "containers with them": self.containers, "seen with pages": used}
        yield ", ".join(f"{what}: {len(found)}" for what, found in figures.items())
        for kind in Kind:
            spans = [fault.span.length for fault in self.faults if fault.fault.kind is kind]
            yield f"{kind}: {len(spans)} faults with an agent, the longest of {max(spans, default=0):.2f} s"
        for item in self.violations:
            fault, start = item.fault, item.span.start - self.log.start
            when = f"{fault.kind} of {item.span.length:.2f} s, {start:.2f} s after the start"
            yield f"{when}: {fault.subject}: {item.found}"


def judge_memory(log: SampleLog, synchronized: Iterable[float], there: Promises) -> MemoryVerdict:
    """Finds all faults in a log; `synchronized` has the times at which the runtime had synchronized an agent, and
    `there` what the node offers."""
    absences = absences_of_agent(log, synchronized)
    late = created_without_agent(log, absences)
    faults = [
        Violation(found.fault, span, found.found)
        for found in faults_of(log, there, late)
        for span in found.span.without(absences)
    ]
    return MemoryVerdict(log, faults)


def created_without_agent(log: SampleLog, absences: Sequence[Span]) -> frozenset[str]:
    """Returns the containers that were first seen while no agent ran."""
    seen: dict[str, float] = {}
    for snapshot in log.snapshots:
        for uid in snapshot.states:
            seen.setdefault(uid, snapshot.at)
    return frozenset(uid for uid, at in seen.items() if any(span.start <= at <= span.end for span in absences))


def faults_of(log: SampleLog, there: Promises, late: frozenset[str]) -> Iterator[Violation]:
    """Yields every fault, whether or not an agent ran."""
    lasting: dict[Fault, tuple[float, str]] = {}
    for snapshot in log.snapshots:
        faults = dict(faults_in(snapshot, log, there, late))
        for fault in [fault for fault in lasting if fault not in faults]:
            start, found = lasting.pop(fault)
            yield Violation(fault, Span(start, snapshot.at), found)
        for fault, found in faults.items():
            lasting.setdefault(fault, (snapshot.at, found))
    for fault, (start, found) in lasting.items():
        yield Violation(fault, Span(start, log.end), found)


def faults_in(snapshot: Snapshot, log: SampleLog, there: Promises, late: frozenset[str]) -> Iterator[tuple[Fault, str]]:
    """Yields what is wrong at a moment, and what was found there."""
    promised: Counter[tuple[str, int]] = Counter()
    for promises in snapshot.promises.values():
        promised.update(promises)
    for (kind, numa), size in promised.items():
        if size > there.get((kind, numa), 0):
            yield Fault(Kind.PROMISED, f"{kind} of NUMA node {numa}"), f"{size} bytes"
    running = {uid: state.memory for uid, state in snapshot.states.items() if state.running}
    # a container that has ended may still be listed beside the one that was started in its place
    present = [log.containers[uid] for uid in snapshot.states]
    pages = {(one.namespace, one.pod, one.name): _pages(one) for one in present}
    pages_of_pods = Counter[tuple[str, str]]()
    for (namespace, pod, _), size in pages.items():
        pages_of_pods[namespace, pod] += size
    for uid, memory in running.items():
        container = log.containers[uid]
        numa_nodes = frozenset(numa for _, numa in container.promises)
        ordinary = sum(size for (kind, _), size in container.promises.items() if kind == ORDINARY)
        of_pod = pages_of_pods[container.namespace, container.pod]
        if ordinary and uid not in late:
            if memory.limit is None or memory.limit > ordinary:
                yield Fault(Kind.LIMIT, str(container)), f"{memory.limit}, not at most {ordinary}"
            if frozenset(memory.mems) != numa_nodes or not numa_nodes.issuperset(numa for numa, _ in memory.pages_on):
                found = f"mems {memory.mems}, pages {memory.pages_on}, not NUMA nodes {sorted(numa_nodes)}"
                yield Fault(Kind.PLACE, str(container)), found
        if of_pod:
            own = _pages(container)
            if memory.pages != Limits(own, own) and uid not in late:
                yield Fault(Kind.PAGES, str(container)), f"{memory.pages}, not {own}"
            if memory.pages_of_pod != Limits(of_pod, of_pod):
                yield Fault(Kind.PAGES_OF_POD, container.pod), f"{memory.pages_of_pod}, not {of_pod}"


def _pages(container: Container) -> int:
    return sum(size for (kind, _), size in container.promises.items() if kind == PAGES)

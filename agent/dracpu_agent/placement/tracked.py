"""One container, and what is known about the CPUs on which its processes may run.

Sending CPUs to the runtime does not put them in force. The runtime writes a container's cgroup from its stored record
when the container starts; until the container runs, an update changes that record only, and still succeeds. It applies
its answer to the kubelet's update some time after our hook has returned, and it only logs a failed update that came in
the reply to a hook about another container. So `sent` and `possible` are kept apart: the cgroup has the CPUs that were
sent only once nothing else is possible any more.
"""

from dataclasses import dataclass
from enum import Enum, auto

from dracpu_agent.placement.container import Container
from dracpu_agent.placement.proof import Use
from dracpu_api.cpuset import EMPTY, CpuSet


class Stage(Enum):
    """How far a container has come."""

    CREATING = auto()  # the runtime has not stored it: updates do not find it
    CREATED = auto()  # stored; its cgroup is written from this record before its StartContainer hook
    STARTING = auto()  # that hook has returned; updates may still change the record only
    RUNNING = auto()  # updates change its cgroup


@dataclass(slots=True)
class Tracked:
    """A container that the runtime has reported."""

    container: Container
    uses: frozenset[Use]
    stage: Stage
    sent: CpuSet  # the last CPUs that the runtime accepted; EMPTY: none, or not known
    possible: CpuSet | None  # the CPUs that its cgroup may allow; None: not known, so any
    pending: CpuSet = EMPTY  # the answer to the kubelet's update, which the runtime may apply at any moment
    replied: bool = False  # a reply has included `sent` since the container runs
    moved: tuple[str, ...] = ()  # containers that the reply to its creation moves
    unattended: bool = False  # its cgroup may have been written while no agent was connected
    overdue: bool = False  # its next event has not come for so long that nothing waits for it any more
    events: int = 0  # grows with each event that may change its CPUs

    @property
    def confirmed(self) -> bool:
        """True when the cgroup is known to have the CPUs that were sent last."""
        return self.possible == self.sent and not self.pending

    def may_run_on(self, cpus: CpuSet) -> bool:
        """True when its processes may run on any of these CPUs now."""
        return self.possible is None or not self.possible.isdisjoint(cpus)

    def may_come_to(self, cpus: CpuSet) -> bool:
        """True when it may run on any of these CPUs after an event that no update can prevent: its start, or the end of
        the kubelet's update."""
        if self.stage is Stage.RUNNING:
            return not self.pending.isdisjoint(cpus)
        return self.may_run_on(cpus)

    def send_in_reply(self, cpus: CpuSet) -> None:
        """The reply to a hook about another container includes an update; the runtime does not report its failure."""
        self._add(cpus)
        self.replied = self.stage is Stage.RUNNING

    def send_again_in_reply(self) -> None:
        """A reply repeats the CPUs. With the second reply to a running container they count as applied: without pushes
        no better confirmation can be had."""
        if self.replied and not self.pending:
            self.possible = self.sent
        self.replied = True

    def reply_lost(self) -> None:
        """The runtime may have dropped a reply that included an update."""
        self.sent, self.possible = EMPTY, None

    def repeat(self, cpus: CpuSet) -> None:
        """The answer to the kubelet's update repeats its CPUs; the runtime applies it after the hook."""
        self._add(cpus)
        self.pending = cpus

    def updated(self) -> None:
        """The kubelet's update has succeeded."""
        if not self.pending:  # this was reported later than anything waits for it
            self.possible, self.replied = None, False
        elif self.sent == self.pending and self.stage is Stage.RUNNING:
            self.possible = self.pending
        self.pending = EMPTY
        self.events += 1

    def started(self) -> None:
        """The container runs: from now on updates change its cgroup."""
        if self.stage is not Stage.STARTING:
            self.possible = None  # its start was not checked, or was assumed before
        self.stage, self.replied = Stage.RUNNING, False
        self.events += 1

    def expire(self) -> None:
        """The end of its start, or of the kubelet's update, is not reported: the start or the update may have failed,
        or another plugin has prevented the report."""
        self.overdue = True
        if self.stage is Stage.STARTING or self.pending:
            self.stage = Stage.RUNNING
            self.possible, self.pending, self.replied = None, EMPTY, False
            self.events += 1

    def pushed(self, cpus: CpuSet, *, undisturbed: bool) -> None:
        """The runtime has applied an update; `undisturbed`: no other event has come since it was sent."""
        self._add(cpus)
        if undisturbed and not self.pending:
            self.possible = cpus

    def push_failed(self, cpus: CpuSet) -> None:
        """It is not known whether the runtime has applied an update."""
        self._add(cpus)
        self.sent = EMPTY

    def _add(self, cpus: CpuSet) -> None:
        self.sent, self.replied = cpus, False
        self.possible = None if self.possible is None else self.possible | cpus
        self.events += 1

"""One container, and what is known about the CPUs on which its processes may run.

Sending CPUs to the runtime does not put them in force. The runtime writes a container's cgroup from its stored record
when the container starts; until the container runs, an update changes that record only, and still succeeds. It applies
its answer to the kubelet's update some time after our hook has returned, and it only logs a failed update that came in
the reply to a hook about another container. So `sent` and `possible` are kept apart: the cgroup has the CPUs that were
sent only once nothing else is possible any more.

Limits are simpler: a container has those that were sent last, or it is not known which it has (`limits_known`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from dracpu_agent.memory.existing import lowered_to, needed_at_start, raised_to
from dracpu_agent.placement.container import Container, Limits, Resources
from dracpu_agent.placement.division import Division
from dracpu_agent.placement.proof import Use
from dracpu_api.cpuset import CpuSet


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
    sent: Resources  # the last that the runtime accepted; without CPUs: none, or not known
    possible: CpuSet | None  # the CPUs that its cgroup may allow; None: not known, so any
    pending: Resources | None = None  # the answer to the kubelet's update, which the runtime may apply at any moment
    changing: Container | None = None  # as the kubelet's update describes it; the update may still fail
    limits_known: bool = False  # its cgroup has the limits that were sent last
    limits_found: Limits = ()  # those that its cgroup had when it was read
    not_late: tuple[Container, frozenset[Use], int] | None = None  # it has all limits, by this revision of them
    replied: bool = False  # a reply has included `sent` since the container runs
    moved: tuple[str, ...] = ()  # containers that the reply to its creation moves
    unattended: bool = False  # its cgroup may have been written while no agent was connected
    overdue: bool = False  # its next event has not come for so long that nothing waits for it any more
    events: int = 0  # grows with each event that may change its CPUs

    @property
    def confirmed(self) -> bool:
        """True when the cgroup is known to have the resources that were sent last."""
        return self.possible == self.sent.cpus and self.has_limits and self.pending is None

    @property
    def has_limits(self) -> bool:
        """True when the cgroup is known to have the limits that were sent last; none need no confirmation."""
        return self.limits_known or not self.sent.limits

    def wanted(self, division: Division) -> Resources:
        """The CPUs and limits that it should have, as far as it can be sent them."""
        return division.resources_of(self.changing or self.container, self.uses)

    def missing_limits(self, division: Division) -> Limits:
        """The limits of its claims without which it must not start, unless its cgroup is known to have them."""
        limits = needed_at_start(dict(division.claimed_limits(self.changing or self.container, self.uses)))
        known = needed_at_start(dict(self.sent.limits if self.limits_known else ()))
        return () if limits in (known, dict(self.limits_found)) else _limits(limits)

    def strays(self, division: Division) -> bool:
        """True when the container may run on CPUs of a claim that is not its own, or off the CPUs of its own claims."""
        if self.possible is None:
            return division.pins(self.uses) or bool(division.exclusive)
        if self.possible.isdisjoint(division.online):
            return True  # all offline: then cgroup v2 lets it run wherever its parent may
        return not self.possible.isdisjoint(division.exclusive - division.held_by(self.uses))

    def needs_push(self, division: Division) -> bool:
        """True when the runtime has to be sent its resources, or to confirm them."""
        if self.stage is not Stage.RUNNING:
            return False
        wanted = self.wanted(division)
        # while the kubelet's update is pending, nothing that is sent can be confirmed
        return bool(wanted.cpus) and (wanted != self.sent or not (self.confirmed or self.pending))

    def may_run_on(self, cpus: CpuSet) -> bool:
        """True when its processes may run on any of these CPUs now."""
        return self.possible is None or not self.possible.isdisjoint(cpus)

    def may_come_to(self, cpus: CpuSet) -> bool:
        """True when it may run on any of these CPUs after an event that no update can prevent: its start, or the end of
        the kubelet's update."""
        if self.stage is Stage.RUNNING:
            return self.pending is not None and not self.pending.cpus.isdisjoint(cpus)
        return self.may_run_on(cpus)

    def send_in_reply(self, wanted: Resources) -> None:
        """The reply to a hook about another container includes an update; the runtime does not report its failure."""
        self._add(wanted)
        self.replied = self.stage is Stage.RUNNING

    def send_again_in_reply(self) -> None:
        """A reply repeats the update. With the second reply to a running container it counts as applied: without pushes
        the runtime confirms nothing."""
        if self.replied and self.pending is None:
            self._applied(self.sent)
        self.replied = True

    def reply_lost(self) -> None:
        """The runtime may have dropped a reply that included an update."""
        self.sent, self.possible, self.limits_known = Resources(), None, False

    def begin_change(self, memory_limit: int | None) -> None:
        """The kubelet is about to update it, perhaps with this limit of memory; None: its spec has none."""
        self._forget_change()
        if memory_limit is not None:
            recorded = _limits(lowered_to(memory_limit, dict(self.container.recorded)))
            self.changing = replace(self.container, memory_limit=memory_limit, recorded=recorded)

    def repeat(self, wanted: Resources) -> None:
        """The answer to the kubelet's update repeats its resources; the runtime applies it after the hook."""
        self._add(wanted)
        self.pending = wanted

    def updated(self, memory_limit: int | None) -> None:
        """The kubelet's update has succeeded."""
        if self.pending is None:  # this was reported later than anything waits for it
            self.possible, self.limits_known, self.replied = None, False, False
            self.container = replace(self.container, memory_limit=memory_limit or self.container.memory_limit)
        elif self.sent == self.pending and self.stage is Stage.RUNNING:
            self._applied(self.pending)
        self.container, self.changing = self.changing or self.container, None
        self.pending = None
        self.events += 1

    def started(self) -> None:
        """The container runs: from now on updates change its cgroup."""
        if self.stage is not Stage.STARTING:
            self.possible, self.limits_known = None, False  # its start was not checked, or was assumed before
        self.stage, self.replied = Stage.RUNNING, False
        self.container = replace(self.container, started=True)
        self.events += 1

    def expire(self) -> None:
        """The end of its start, or of the kubelet's update, is not reported: the start or the update may have failed,
        or another plugin has prevented the report."""
        self.overdue = True
        if self.stage is Stage.STARTING or self.pending is not None:
            self.stage = Stage.RUNNING
            self._forget_change()
            self.container = replace(self.container, started=True)
            self.possible, self.limits_known, self.pending, self.replied = None, False, None, False
            self.events += 1

    def pushed(self, update: Resources, *, undisturbed: bool) -> None:
        """The runtime has applied an update; `undisturbed`: no other event has come since it was sent."""
        self._add(update)
        if undisturbed and self.pending is None:
            self._applied(update)

    def push_failed(self, update: Resources) -> None:
        """It is not known whether the runtime has applied an update."""
        self._add(update)
        self.sent, self.limits_known = Resources(), False

    def _add(self, wanted: Resources) -> None:
        if wanted.limits != self.sent.limits:
            self.limits_known = False
        self.sent, self.replied = wanted, False
        self.possible = None if self.possible is None else self.possible | wanted.cpus
        self.events += 1

    def found_limits(self, limits: Limits) -> None:
        """Its cgroup has these limits before it starts."""
        self.limits_found = limits
        self.add_recorded(dict(limits))

    def add_recorded(self, limits: Mapping[str, str]) -> None:
        """Its cgroup has these limits, so that the runtime can be sent them without harm."""
        self.container = replace(self.container, recorded=_limits({**dict(self.container.recorded), **limits}))

    def _forget_change(self) -> None:
        """The kubelet's update may have failed, and the runtime may have applied its answer or a part of it."""
        if self.pending is not None:
            recorded = raised_to(dict(self.pending.limits), dict(self.container.recorded))
            self.container = replace(self.container, recorded=_limits(recorded))
        self.changing = None

    def _applied(self, resources: Resources) -> None:
        self.possible, self.limits_known = resources.cpus, True


@dataclass(frozen=True, slots=True)
class Doubt:
    """A container that is about to start, perhaps on CPUs that are not its own, or without its limits; only its cgroup
    can show that."""

    tracked: Tracked
    events: int  # of the container before its cgroup was read
    cpus: bool = True  # which CPUs it may run on is in doubt
    limits: Limits = ()  # those that are in doubt


def _limits(files: Mapping[str, str]) -> Limits:
    return tuple(sorted(files.items()))

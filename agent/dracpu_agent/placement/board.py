"""The containers of the node: the CPUs that the runtime was sent for each, and the CPUs that each should have.

The board records events (created, started, stopped, synchronized, an update answered) and computes the rest when it is
asked. It keeps only the order in which pushes are due; each push is computed when it is sent, so none is out of date.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from dracpu_agent.errors import PlacementError
from dracpu_agent.memory.existing import in_force, late
from dracpu_agent.placement.container import Container, ContainerUpdate, Limits, Placement, Resources
from dracpu_agent.placement.division import Division
from dracpu_agent.placement.proof import ClaimKey, Use
from dracpu_agent.placement.reply import Due, select, size_of
from dracpu_agent.placement.sharing import Sharer, sharers
from dracpu_agent.placement.tracked import Doubt, Stage, Tracked
from dracpu_api.cpuset import EMPTY, CpuSet, union

# A refused start ends the container. The kubelet creates another one, except for a pod that never restarts.
REPLACED: Final = "the kubelet creates it again, unless the pod's restartPolicy is Never"


class Board:
    """Every container that the runtime has, and the updates that the runtime must be sent."""

    def __init__(self) -> None:
        self.pushes = False  # the runtime takes updates outside of hooks, and reports whether it has applied them
        self._tracked: dict[str, Tracked] = {}
        self._under_way: tuple[Tracked, int] | None = None  # the container of the last push, and its events before it
        self._queue: deque[Tracked] = deque()  # to push, in this order, until an event may change the order
        self._queued_for: tuple[Division, frozenset[str]] | None = None

    def __len__(self) -> int:
        return len(self._tracked)

    def __contains__(self, container_id: str) -> bool:
        return container_id in self._tracked

    def __iter__(self) -> Iterator[Sharer]:
        return (Sharer(tracked.container, tracked.uses) for tracked in self._tracked.values())

    def uses(self, claim: ClaimKey) -> bool:
        """True while a container of the claim exists."""
        return any(use.claim == claim for tracked in self._tracked.values() for use in tracked.uses)

    def used_claims(self) -> frozenset[ClaimKey]:
        """The claims that containers belong to."""
        return frozenset(use.claim for tracked in self._tracked.values() for use in tracked.uses)

    def pods_of(self, claim: ClaimKey) -> frozenset[str]:
        """The UIDs of the pods that have containers of the claim."""
        return frozenset(known.pod_uid for known, uses in self if any(use.claim == claim for use in uses))

    def pinned(self, division: Division) -> int:
        """How many containers run on CPUs of claims."""
        return sum(1 for tracked in self._tracked.values() if division.pins(tracked.uses))

    # ---- the complete list

    def replace_all(
        self, containers: Iterable[Container], uses_of: Callable[[Container], frozenset[Use]], division: Division
    ) -> tuple[ContainerUpdate, ...]:
        """Takes over the runtime's complete list; returns the updates for containers whose CPUs are not right."""
        former, self._tracked = self._tracked, {}
        for container in containers:
            stage = Stage.RUNNING if container.started else Stage.CREATED
            found = Tracked(container, uses_of(container), stage, sent=Resources(container.cpus), possible=None)
            # one with our variables may belong to a claim that is not shown yet
            found.unattended = not container.started and not container.env
            known = former.get(container.id)
            found.overdue = bool(known and known.overdue and known.stage is stage is Stage.CREATED)
            if (
                known
                and known.stage is stage is Stage.RUNNING
                and known.confirmed
                and known.sent.cpus == container.cpus
            ):
                # otherwise the runtime's record proves nothing: its CPUs may not have reached the cgroup
                found.sent, found.possible, found.limits_known = known.sent, known.possible, known.limits_known
            self._tracked[container.id] = found
        # with pushes, CPUs that are right by the runtime's record are confirmed later, container by container
        records = tuple(self._update_records(division))
        taken = sum(map(size_of, records))
        return (*records, *self.take_updates(division, growing=True, repeating=not self.pushes, taken=taken))

    def _update_records(self, division: Division, clearing: CpuSet | None = None) -> Iterator[ContainerUpdate]:
        """Updates of containers that are not started, or of those that may start on `clearing`: they take effect where
        the cgroup is not written yet."""
        for tracked in self._tracked.values():
            if clearing is not None and not tracked.may_come_to(clearing - division.held_by(tracked.uses)):
                continue
            wanted = tracked.wanted(division)
            if tracked.stage is Stage.CREATED and wanted.cpus and wanted != tracked.sent:
                tracked.send_in_reply(wanted)
                yield _update(tracked, wanted)

    # ---- a container's life

    def create(self, container: Container, uses: frozenset[Use], division: Division) -> Placement:
        """Places a container that the runtime is about to create, and moves others off the CPUs of claims."""
        self._forget_failed_creation_of(container)
        division.admit(container, uses, sharers(container, uses, self))
        at_creation = division.at_creation(container, uses)
        container = replace(container, is_new=True, placed=True, started=False, mounted=frozenset())
        wanted = division.resources_of(container, uses)
        cpus = wanted.cpus
        if not cpus:
            raise PlacementError(
                f"no CPU is left for container {container.name}: every CPU is held by a claim or offline"
            )
        pinned = division.pins(uses)
        if pinned:
            self._check_nobody_comes_to(cpus, division)
        clearing = cpus if pinned else EMPTY
        updates = self.take_updates(division, growing=not self.pushes, repeating=True, clearing=clearing)
        if pinned:
            updates += tuple(self._update_records(division, clearing))
        moved = tuple(update.container_id for update in updates)
        container = replace(container, is_new=False, recorded=wanted.limits)
        made = Tracked(container, uses, Stage.CREATING, sent=wanted, possible=cpus, limits_known=True, moved=moved)
        self._tracked[container.id] = made
        return Placement(cpus, updates, wanted.limits, at_creation)

    def created(self, container_id: str) -> None:
        """The runtime has stored the container."""
        tracked = self._event_of(container_id)
        if tracked is not None and tracked.stage is Stage.CREATING:
            tracked.stage = Stage.CREATED
            tracked.moved = ()

    def begin_start(self, container: Container, uses: frozenset[Use], division: Division) -> Doubt | None:
        """The runtime is about to start a container; returns a doubt that its cgroup can resolve."""
        tracked = self._tracked.get(container.id)
        if tracked is None:  # its creation was not reported, or took too long
            container = replace(container, started=False)
            tracked = Tracked(container, uses, Stage.CREATED, sent=Resources(), possible=None)
            self._tracked[container.id] = tracked
        elsewhere, limits = self._starts_elsewhere(tracked, division), tracked.missing_limits(division)
        return Doubt(tracked, tracked.events, elsewhere, limits) if elsewhere or limits else None

    def resolve(self, doubt: Doubt, cpus: CpuSet | None, found: Mapping[str, str] | None = None) -> None:
        """The cgroup of the container allows these CPUs, and its files have this content; None: not known."""
        tracked = doubt.tracked
        if doubt.events != tracked.events:
            return
        self._queue.clear()
        if cpus is not None:
            tracked.possible = cpus | tracked.pending.cpus if tracked.pending else cpus
        if found is not None and in_force(dict(doubt.limits), found):
            tracked.found_limits(doubt.limits)

    def check_start(self, container: Container, division: Division) -> None:
        """Refuses to start a container that may run on CPUs of another container's claim, off its own claims, or
        without the limits of its claims: a program that has begun to use more cannot be limited without harm.

        CPUs of a claim that no container uses yet are no reason: those are created after this container has started,
        and move it. A container without claims whose cgroup was written while no agent was connected starts, as it
        would have without the agent, and is the first to be moved. Not so a claim's container: its program may read its
        CPUs only once, when it starts.
        """
        tracked = self._tracked.get(container.id)
        if tracked is None:
            raise PlacementError(f"container {container.name} has ended, or the agent connects anew: {REPLACED}")
        pinned = division.pins(tracked.uses)
        can_be_moved = self.pushes and bool(division.cpus_of(tracked.uses))
        moved_first = tracked.unattended and not (pinned or tracked.overdue) and can_be_moved
        if not moved_first and self._starts_elsewhere(tracked, division):
            known = f'CPUs "{tracked.possible}"' if tracked.possible else "CPUs that are not known"
            if tracked.possible is not None and tracked.possible.isdisjoint(division.online):
                wrong = "which are offline"
            else:
                wrong = "which are not those of its claims" if pinned else "where others run on their claims"
            raise PlacementError(f"container {container.name} would start on {known}, {wrong}: {REPLACED}")
        if limits := tracked.missing_limits(division):
            raise PlacementError(
                f"container {container.name} would start without the limits of its claims, or it is not known whether "
                f"it has them ({', '.join(file for file, _ in limits)}): {REPLACED}"
            )
        if tracked.stage is not Stage.RUNNING:
            tracked.stage = Stage.STARTING

    def started(self, container_id: str) -> None:
        """The container runs."""
        if tracked := self._event_of(container_id):
            tracked.started()

    def found_running(self, container: Container, uses: frozenset[Use]) -> None:
        """A container runs that no earlier event was about: its CPUs are not known."""
        self._queue.clear()
        self._tracked[container.id] = Tracked(container, uses, Stage.RUNNING, sent=Resources(), possible=None)

    def prove(self, container_id: str, uses: frozenset[Use]) -> None:
        """The container turned out to belong to claims: it gets their CPUs with the next update."""
        if tracked := self._event_of(container_id):
            tracked.uses = uses

    def repeat(self, container_id: str, memory_limit: int | None, division: Division) -> ContainerUpdate | None:
        """Repeats what a container has when the kubelet changes its resources; None if there is nothing to repeat."""
        tracked = self._event_of(container_id)
        if tracked is None:
            return None
        tracked.begin_change(memory_limit)
        wanted = tracked.wanted(division)
        if not wanted.cpus:
            return None
        tracked.repeat(wanted)
        return _update(tracked, wanted)

    def updated(self, container_id: str, memory_limit: int | None = None) -> None:
        """The runtime has carried out the kubelet's change of a container, which has this limit of memory now."""
        if tracked := self._event_of(container_id):
            tracked.updated(memory_limit)

    def late(self, division: Division) -> Iterator[tuple[Container, Limits]]:
        """The containers that run without limits of their claims, and all limits that they must have."""
        for tracked in self._tracked.values():
            looked_at = tracked.container, tracked.uses, division.limits_revision
            if tracked.stage is not Stage.RUNNING or tracked.pending or tracked.not_late == looked_at:
                continue
            wanted = division.claimed_limits(tracked.container, tracked.uses)
            if late(dict(wanted), dict(tracked.wanted(division).limits)):
                yield tracked.container, wanted
            else:
                tracked.not_late = looked_at  # this is asked after every change of the node

    def corrected(self, container_id: str, limits: Mapping[str, str]) -> None:
        """The cgroup of a running container has these limits now: the runtime is sent them next."""
        if tracked := self._event_of(container_id):
            tracked.add_recorded(limits)

    def expire(self, container_id: str) -> None:
        """The next event of a container that is being created, started or changed has not come for too long."""
        tracked = self._event_of(container_id)
        if tracked is None:
            return
        if tracked.stage is Stage.CREATING and not tracked.uses:
            self.stopped(container_id)  # it failed, and the runtime did not report that
        else:
            tracked.expire()

    def stopped(self, container_id: str) -> frozenset[ClaimKey]:
        """The container is gone; returns the claims that it belonged to."""
        tracked = self._tracked.pop(container_id, None)
        if tracked is None:
            return frozenset()
        for moved in tracked.moved:  # a creation that failed: the runtime may have dropped the whole reply
            if other := self._event_of(moved):
                other.reply_lost()
        return frozenset(use.claim for use in tracked.uses)

    def forget_unstored(self, claim: ClaimKey) -> None:
        """The kubelet has given a claim up: the creation of its containers that are not stored by now has failed."""
        for tracked in list(self._tracked.values()):
            if tracked.stage is Stage.CREATING and any(use.claim == claim for use in tracked.uses):
                self.stopped(tracked.container.id)

    def _event_of(self, container_id: str) -> Tracked | None:
        """The container that an event is about: it may be more urgent now than others whose push is due."""
        self._queue.clear()
        return self._tracked.get(container_id)

    def _forget_failed_creation_of(self, container: Container) -> None:
        """Some runtimes do not report that a creation failed after our hook (CRI-O); the next attempt has a new id."""
        failed = [
            known.container.id
            for known in self._tracked.values()
            if known.stage is Stage.CREATING
            and (known.container.pod_uid, known.container.name) == (container.pod_uid, container.name)
        ]
        for container_id in failed:
            self.stopped(container_id)

    # ---- updates of others

    def take_updates(
        self, division: Division, *, growing: bool, repeating: bool, clearing: CpuSet = EMPTY, taken: int = 0
    ) -> tuple[ContainerUpdate, ...]:
        """The updates for a hook's reply: containers that must leave CPUs and, if `growing`, those that get more.

        The runtime does not report whether it has applied them, so a later reply repeats the update of a container that
        must leave CPUs (`repeating`). Without pushes, which are answered, the second reply counts as applied. What the
        reply has no room for remains for pushes and later replies, except for containers that must leave `clearing`;
        other updates have `taken` bytes of the room.
        """
        selected = select(list(self._due(division, growing=growing, repeating=repeating)), clearing, taken)
        for tracked, update, _, repeated in selected:
            if not repeated:
                tracked.send_in_reply(update.resources)
            elif not self.pushes:
                tracked.send_again_in_reply()
        return tuple(due.update for due in selected)

    def _due(self, division: Division, *, growing: bool, repeating: bool) -> Iterator[Due]:
        for tracked in self._tracked.values():
            wanted = tracked.wanted(division)
            if tracked.stage is not Stage.RUNNING or not wanted.cpus:
                continue
            strays = tracked.strays(division)
            repeated = wanted == tracked.sent
            urgent = strays or not (self.pushes or tracked.has_limits)
            needed = repeating and urgent and not tracked.confirmed if repeated else growing or urgent
            if needed:
                yield Due(tracked, _update(tracked, wanted), strays, repeated)

    def next_push(self, division: Division, skip: frozenset[str]) -> ContainerUpdate | None:
        """The update of one container whose CPUs are not right, or not confirmed; containers that must leave CPUs come
        first."""
        if self._queued_for != (division, skip) or self._first_queued(division) is None:
            due = [
                tracked
                for tracked in self._tracked.values()
                if tracked.container.id not in skip and tracked.needs_push(division)
            ]
            self._queue = deque(sorted(due, key=lambda tracked: (not tracked.strays(division), not tracked.unattended)))
            self._queued_for = division, skip
        found = self._first_queued(division)
        if found is None:
            return None
        self._under_way = (found, found.events)
        return _update(found, found.wanted(division))

    def _first_queued(self, division: Division) -> Tracked | None:
        while self._queue:
            tracked = self._queue[0]
            if self._tracked.get(tracked.container.id) is tracked and tracked.needs_push(division):
                return tracked
            self._queue.popleft()
        return None

    def pushed(self, update: ContainerUpdate, *, applied: bool) -> None:
        """The runtime has answered the last push, or has failed to."""
        tracked = self._tracked.get(update.container_id)
        if tracked is None:
            return
        if not applied:
            tracked.push_failed(update.resources)
            return
        sent, events = self._under_way or (None, 0)
        tracked.pushed(update.resources, undisturbed=sent is tracked and events == tracked.events)

    def unsettled_on(self, cpus: CpuSet, claim: ClaimKey) -> bool:
        """True while a container that is being created, started or changed may come to CPUs of this claim."""
        return any(
            tracked.may_come_to(cpus) and not tracked.overdue
            for tracked in self._tracked.values()
            if all(use.claim != claim for use in tracked.uses)
        )

    # ---- what is right

    def _starts_elsewhere(self, tracked: Tracked, division: Division) -> bool:
        """True when a container may start on CPUs that others' claims use, or off the CPUs of its own claims."""
        own = division.held_by(tracked.uses)
        foreign = self._occupied(tracked, division) - own
        if tracked.possible is None:
            return division.pins(tracked.uses) or bool(foreign)
        right = own | division.cpus_of(tracked.uses)
        pinned = division.pins(tracked.uses)
        astray = not tracked.possible <= right if pinned else not tracked.possible.isdisjoint(foreign)
        return astray or tracked.possible.isdisjoint(division.online)

    def _check_nobody_comes_to(self, cpus: CpuSet, division: Division) -> None:
        """Refuses to create a claim's container on CPUs that no update can clear at this moment.

        The kubelet repeats a creation that was refused, for every pod. It never repeats a start for some pods, so the
        container that is being created comes second to those that are about to start.
        """
        for tracked in self._tracked.values():
            if tracked.stage is Stage.CREATED and division.pins(tracked.uses):
                continue  # it starts on its own CPUs or not at all
            given_up = tracked.overdue and tracked.stage in (Stage.CREATING, Stage.CREATED)
            if not given_up and tracked.may_come_to(cpus - division.held_by(tracked.uses)):
                raise PlacementError(
                    f"container {tracked.container} is being started or changed and may still run on CPUs of the "
                    "claim: the kubelet retries"
                )

    def _occupied(self, besides: Tracked, division: Division) -> CpuSet:
        """The CPUs of claims that other containers use."""
        others = (tracked for tracked in self._tracked.values() if tracked is not besides)
        return union(division.held_by(tracked.uses) for tracked in others)


def _update(tracked: Tracked, wanted: Resources) -> ContainerUpdate:
    return ContainerUpdate(tracked.container.id, wanted.cpus, wanted.limits)

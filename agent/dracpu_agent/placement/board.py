"""The containers of the node: the CPUs that the runtime was sent for each, and the CPUs that each should have.

The board records events (created, started, stopped, synchronized, an update answered) and computes the rest when it is
asked. It keeps only the order in which pushes are due; each push is computed when it is sent, so none is out of date.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container, ContainerUpdate, Placement, Resources
from dracpu_agent.placement.division import Division
from dracpu_agent.placement.proof import ClaimKey, Use
from dracpu_agent.placement.reply import Due, select, size_of
from dracpu_agent.placement.sharing import Sharer, sharers
from dracpu_agent.placement.tracked import Stage, Tracked
from dracpu_api.cpuset import EMPTY, CpuSet, union


@dataclass(frozen=True, slots=True)
class Doubt:
    """A container that is about to start, perhaps on CPUs that are not its own; only its cgroup can show that."""

    tracked: Tracked
    events: int  # of the container before its cgroup was read


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
            if clearing is not None and not tracked.may_come_to(clearing - self._own(tracked, division)):
                continue
            wanted = self._wanted(tracked.container, tracked.uses, division)
            if tracked.stage is Stage.CREATED and wanted.cpus and wanted != tracked.sent:
                tracked.send_in_reply(wanted)
                yield _update(tracked, wanted)

    # ---- a container's life

    def create(self, container: Container, uses: frozenset[Use], division: Division) -> Placement:
        """Places a container that the runtime is about to create, and moves others off the CPUs of claims."""
        self._forget_failed_creation_of(container)
        division.admit(container, uses, sharers(container, uses, self))
        at_creation = division.at_creation(container, uses)
        container = replace(container, placed=True, mounted=frozenset())
        wanted = self._wanted(container, uses, division)
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
        """The runtime is about to start a container; returns a doubt about its CPUs that its cgroup can resolve."""
        tracked = self._tracked.get(container.id)
        if tracked is None:  # its creation was not reported, or took too long
            tracked = Tracked(container, uses, Stage.CREATED, sent=Resources(), possible=None)
            self._tracked[container.id] = tracked
        return Doubt(tracked, tracked.events) if self._starts_elsewhere(tracked, division) else None

    def resolve(self, doubt: Doubt, cpus: CpuSet) -> None:
        """The cgroup of the container allows these CPUs."""
        if doubt.events == doubt.tracked.events:
            self._queue.clear()
            pending = doubt.tracked.pending
            doubt.tracked.possible = cpus | pending.cpus if pending else cpus

    def check_start(self, container: Container, division: Division) -> None:
        """Refuses to start a container that may run on CPUs of another container's claim, or off its own claims.

        CPUs of a claim that no container uses yet are no reason: those are created after this container has started,
        and move it. A container without claims whose cgroup was written while no agent was connected starts, as it
        would have without the agent, and is the first to be moved. Not so a claim's container: its program may read its
        CPUs only once, when it starts.
        """
        tracked = self._tracked.get(container.id)
        if tracked is None:
            raise PlacementError(f"container {container.name} has ended, or the agent connects anew: {REPLACED}")
        pinned = division.pins(tracked.uses)
        can_be_moved = self.pushes and bool(self._wanted_cpus(tracked.uses, division))
        moved_first = tracked.unattended and not (pinned or tracked.overdue) and can_be_moved
        if not moved_first and self._starts_elsewhere(tracked, division):
            known = f'CPUs "{tracked.possible}"' if tracked.possible else "CPUs that are not known"
            if tracked.possible is not None and tracked.possible.isdisjoint(division.online):
                wrong = "which are offline"
            else:
                wrong = "which are not those of its claims" if pinned else "where others run on their claims"
            raise PlacementError(f"container {container.name} would start on {known}, {wrong}: {REPLACED}")
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
        if memory_limit is not None:
            tracked.container = replace(tracked.container, memory_limit=memory_limit)
        wanted = self._wanted(tracked.container, tracked.uses, division)
        if not wanted.cpus:
            return None
        tracked.repeat(wanted)
        return _update(tracked, wanted)

    def updated(self, container_id: str) -> None:
        """The runtime has carried out the kubelet's change of a container."""
        if tracked := self._event_of(container_id):
            tracked.updated()

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
            wanted = self._wanted(tracked.container, tracked.uses, division)
            if tracked.stage is not Stage.RUNNING or not wanted.cpus:
                continue
            strays = self._strays(tracked, division)
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
                if tracked.container.id not in skip and self._needs_push(tracked, division)
            ]
            self._queue = deque(
                sorted(due, key=lambda tracked: (not self._strays(tracked, division), not tracked.unattended))
            )
            self._queued_for = division, skip
        found = self._first_queued(division)
        if found is None:
            return None
        self._under_way = (found, found.events)
        return _update(found, self._wanted(found.container, found.uses, division))

    def _first_queued(self, division: Division) -> Tracked | None:
        while self._queue:
            tracked = self._queue[0]
            if self._tracked.get(tracked.container.id) is tracked and self._needs_push(tracked, division):
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

    def _needs_push(self, tracked: Tracked, division: Division) -> bool:
        if tracked.stage is not Stage.RUNNING:
            return False
        wanted = self._wanted(tracked.container, tracked.uses, division)
        # while the kubelet's update is pending, nothing that is sent can be confirmed
        return bool(wanted.cpus) and (wanted != tracked.sent or not (tracked.confirmed or tracked.pending))

    def _starts_elsewhere(self, tracked: Tracked, division: Division) -> bool:
        """True when a container may start on CPUs that others' claims use, or off the CPUs of its own claims."""
        own = self._own(tracked, division)
        foreign = self._occupied(tracked, division) - own
        if tracked.possible is None:
            return division.pins(tracked.uses) or bool(foreign)
        right = own | self._wanted_cpus(tracked.uses, division)
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
            if not given_up and tracked.may_come_to(cpus - self._own(tracked, division)):
                raise PlacementError(
                    f"container {tracked.container} is being started or changed and may still run on CPUs of the "
                    "claim: the kubelet retries"
                )

    def _wanted(self, container: Container, uses: frozenset[Use], division: Division) -> Resources:
        return Resources(self._wanted_cpus(uses, division), division.limits_of(container, uses))

    def _wanted_cpus(self, uses: frozenset[Use], division: Division) -> CpuSet:
        """The CPUs of its claims that are online; a container without any runs on the shared CPUs."""
        if not uses:
            return division.shared
        granted = union(division.granted.get(use.cdi_device, EMPTY) for use in uses)
        return (granted & division.online) or division.shared

    def _own(self, tracked: Tracked, division: Division) -> CpuSet:
        return union(division.granted.get(use.cdi_device, EMPTY) for use in tracked.uses)

    def _occupied(self, besides: Tracked, division: Division) -> CpuSet:
        """The CPUs of claims that other containers use."""
        others = (tracked for tracked in self._tracked.values() if tracked is not besides)
        return union(self._own(tracked, division) for tracked in others)

    def _strays(self, tracked: Tracked, division: Division) -> bool:
        """True when the container may run on CPUs of a claim that is not its own, or off the CPUs of its own claims."""
        if tracked.possible is None:
            return division.pins(tracked.uses) or bool(division.exclusive)
        if tracked.possible.isdisjoint(division.online):
            return True  # all offline: then cgroup v2 lets it run wherever its parent may
        return not tracked.possible.isdisjoint(division.exclusive - self._own(tracked, division))


def _update(tracked: Tracked, wanted: Resources) -> ContainerUpdate:
    return ContainerUpdate(tracked.container.id, wanted.cpus, wanted.limits)

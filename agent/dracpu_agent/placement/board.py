"""The containers of the node: the CPUs that the runtime was sent for each, and the CPUs that each should have.

The board records events (created, stopped, synchronized, an update answered) and computes the rest when it is asked:
nothing is queued, so nothing queued can be out of date.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container, ContainerUpdate, Placement
from dracpu_agent.placement.proof import Use
from dracpu_api.cpuset import EMPTY, CpuSet, union


@dataclass(frozen=True, slots=True)
class Division:
    """How the node's CPUs are divided at this moment."""

    online: CpuSet
    shared: CpuSet  # for containers without claims; empty only when claims hold every CPU that is online
    granted: Mapping[str, CpuSet]  # CDI device -> CPUs, of every held claim
    exclusive: CpuSet  # every CPU that a claim holds


@dataclass(slots=True)
class _Tracked:
    container: Container
    uses: frozenset[Use]
    sent: CpuSet  # what the runtime was sent last; EMPTY: unknown
    stored: bool  # False from the CreateContainer hook until the runtime has stored the container
    moved: tuple[str, ...] = ()  # by the reply to its creation, which the runtime applies only on success


class Board:
    """Every container that the runtime has, and the updates that the runtime must be sent."""

    def __init__(self) -> None:
        self._tracked: dict[str, _Tracked] = {}

    def __len__(self) -> int:
        return len(self._tracked)

    def uses(self, claim_uid: str) -> bool:
        """True while a container of the claim exists."""
        return any(use.claim_uid == claim_uid for tracked in self._tracked.values() for use in tracked.uses)

    def used_claims(self) -> frozenset[str]:
        """The claims that containers belong to."""
        return frozenset(use.claim_uid for tracked in self._tracked.values() for use in tracked.uses)

    def pinned(self) -> int:
        """How many containers run on claims."""
        return sum(1 for tracked in self._tracked.values() if tracked.uses)

    def replace_all(
        self, containers: Iterable[Container], uses_of: Callable[[Container], frozenset[Use]], division: Division
    ) -> tuple[ContainerUpdate, ...]:
        """Takes over the runtime's complete list; returns the updates for containers whose CPUs are not right."""
        self._tracked = {
            container.id: _Tracked(container, uses_of(container), container.cpus, stored=True)
            for container in containers
        }
        return tuple(self.take_updates(division, growing=True))

    def create(self, container: Container, uses: frozenset[Use], division: Division, *, growing: bool) -> Placement:
        """Places a container that the runtime is about to create, and moves others off the CPUs of claims."""
        self._forget_failed_creation_of(container)
        cpus = self._wanted(uses, division)
        if not cpus:
            raise PlacementError(
                f"no CPU is left for container {container.name}: every CPU is held by a claim or offline"
            )
        updates = tuple(self.take_updates(division, growing=growing))
        moved = tuple(update.container_id for update in updates)
        self._tracked[container.id] = _Tracked(container, uses, cpus, stored=False, moved=moved)
        return Placement(cpus, updates)

    def created(self, container_id: str) -> None:
        """The runtime has stored the container: from now on updates reach it."""
        if container_id in self._tracked:
            self._tracked[container_id].stored = True
            self._tracked[container_id].moved = ()

    def prove(self, container_id: str, uses: frozenset[Use]) -> None:
        """The container turned out to belong to claims: it gets their CPUs with the next update."""
        if container_id in self._tracked:
            self._tracked[container_id].uses = uses

    def check_start(self, container: Container, division: Division) -> None:
        """Refuses to start a container that was not placed, or whose CPUs were given to a claim during its creation."""
        tracked = self._tracked.get(container.id)
        if tracked is None:
            raise PlacementError(
                f"container {container.name} was created while the agent was not connected, so it has no CPUs yet: "
                "the kubelet creates it again"
            )
        if self._strays(tracked, division):
            known = f'CPUs "{tracked.sent}"' if tracked.sent else "the CPUs"
            raise PlacementError(
                f"{known} of container {container.name} were changed while it was being created: "
                "the kubelet creates it again"
            )

    def repeat_cpus(self, container_id: str, division: Division) -> CpuSet:
        """Repeats the CPUs when the kubelet changes a container's other resources; returns them, or none to repeat."""
        tracked = self._tracked.get(container_id)
        if tracked is None:
            return EMPTY
        cpus = self._wanted(tracked.uses, division)
        if cpus:
            tracked.sent = cpus
        return cpus

    def stopped(self, container_id: str) -> frozenset[str]:
        """The container is gone; returns the claims that it belonged to."""
        tracked = self._tracked.pop(container_id, None)
        if tracked is None:
            return frozenset()
        for moved in tracked.moved:  # containerd applies them only when the creation succeeds
            if moved in self._tracked:
                self._tracked[moved].sent = EMPTY
        return frozenset(use.claim_uid for use in tracked.uses)

    def forget_unstored(self, claim_uid: str) -> None:
        """The kubelet has given a claim up: the creation of its containers that are not stored by now has failed."""
        for tracked in list(self._tracked.values()):
            if not tracked.stored and any(use.claim_uid == claim_uid for use in tracked.uses):
                self.stopped(tracked.container.id)

    def take_updates(self, division: Division, *, growing: bool) -> Iterator[ContainerUpdate]:
        """The updates for a hook's reply: containers that must leave CPUs and, if `growing`, those that get more."""
        for tracked in self._tracked.values():
            wanted = self._difference(tracked, division)
            if wanted and (growing or self._strays(tracked, division)):
                tracked.sent = wanted
                yield ContainerUpdate(tracked.container.id, wanted)

    def next_push(self, division: Division, skip: frozenset[str]) -> ContainerUpdate | None:
        """The update of one container whose CPUs are not right; containers that must leave CPUs come first."""
        waiting: ContainerUpdate | None = None
        for tracked in self._tracked.values():
            wanted = self._difference(tracked, division)
            if not wanted or tracked.container.id in skip:
                continue
            waiting = ContainerUpdate(tracked.container.id, wanted)
            if self._strays(tracked, division):
                return waiting
        return waiting

    def pushed(self, update: ContainerUpdate) -> None:
        """The runtime has applied an update."""
        if update.container_id in self._tracked:
            self._tracked[update.container_id].sent = update.cpus

    def push_failed(self, update: ContainerUpdate) -> None:
        """The CPUs of the container are unknown now: its update is sent again."""
        if update.container_id in self._tracked:
            self._tracked[update.container_id].sent = EMPTY

    def _difference(self, tracked: _Tracked, division: Division) -> CpuSet:
        """The CPUs to send; empty when the container has them already, or when the runtime has not stored it yet."""
        if not tracked.stored:
            return EMPTY
        wanted = self._wanted(tracked.uses, division)
        return EMPTY if wanted == tracked.sent else wanted

    def _wanted(self, uses: frozenset[Use], division: Division) -> CpuSet:
        """The CPUs of its claims that are online; a container without any runs on the shared CPUs."""
        granted = union(division.granted.get(use.cdi_device, EMPTY) for use in uses)
        return (granted & division.online) or division.shared

    def _strays(self, tracked: _Tracked, division: Division) -> bool:
        """True when the container may run, by what the runtime was sent, on CPUs of a claim that is not its own."""
        if tracked.sent.isdisjoint(division.online):
            return True  # unknown, or all offline: then cgroup v2 lets it run wherever its parent may
        own = union(division.granted.get(use.cdi_device, EMPTY) for use in tracked.uses)
        return not tracked.sent.isdisjoint(division.exclusive - own)

    def _forget_failed_creation_of(self, container: Container) -> None:
        """Some runtimes do not report that a creation failed after our hook (CRI-O); the next attempt has a new id."""
        failed = [
            known.container.id
            for known in self._tracked.values()
            if not known.stored
            and (known.container.pod_uid, known.container.name) == (container.pod_uid, container.name)
        ]
        for container_id in failed:
            self.stopped(container_id)

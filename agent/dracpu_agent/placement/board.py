"""The containers of the node: on which CPUs each one runs as far as the runtime was told, and where it should run.

The board is told what happened (created, stopped, synchronized, an update answered) and works out the rest: nothing
is queued, so nothing queued can be out of date.
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
    shared: CpuSet  # where containers without claims run; never empty unless the node has no CPU for them at all
    granted: Mapping[str, CpuSet]  # CDI device -> CPUs, of every held claim
    exclusive: CpuSet  # every CPU that a claim holds


@dataclass(slots=True)
class _Tracked:
    container: Container
    uses: frozenset[Use]
    told: CpuSet  # what the runtime was told last; EMPTY: unknown
    known_to_runtime: bool  # False between the CreateContainer hook and the container's storing
    moved: tuple[str, ...] = ()  # containers that its creation was to move: nobody moved when it failed


class Board:
    """Every container that the runtime has, and what it must be told."""

    def __init__(self) -> None:
        self._tracked: dict[str, _Tracked] = {}

    def __len__(self) -> int:
        return len(self._tracked)

    def uses(self, claim_uid: str) -> bool:
        """True while a container of the claim exists."""
        return any(use.claim_uid == claim_uid for tracked in self._tracked.values() for use in tracked.uses)

    def used_claims(self) -> frozenset[str]:
        """The claims that any container belongs to."""
        return frozenset(use.claim_uid for tracked in self._tracked.values() for use in tracked.uses)

    def pinned(self) -> int:
        """How many containers run on claims."""
        return sum(1 for tracked in self._tracked.values() if tracked.uses)

    def replace_all(
        self, containers: Iterable[Container], uses_of: Callable[[Container], frozenset[Use]], division: Division
    ) -> tuple[ContainerUpdate, ...]:
        """The runtime's complete list: forgets everything else, and answers what is not as it should be."""
        self._tracked = {
            container.id: _Tracked(container, uses_of(container), container.cpus, known_to_runtime=True)
            for container in containers
        }
        return tuple(self.take_updates(division, growing=True))

    def create(self, container: Container, uses: frozenset[Use], division: Division, *, growing: bool) -> Placement:
        """Places a container that the runtime is about to create, and moves others off CPUs that are not theirs."""
        self._forget_failed_creation_of(container)
        cpus = self._wanted(uses, division)
        if not cpus:
            raise PlacementError(
                f"no CPU is left for container {container.name}: every CPU is held by a claim or offline"
            )
        updates = tuple(self.take_updates(division, growing=growing))
        moved = tuple(update.container_id for update in updates)
        self._tracked[container.id] = _Tracked(container, uses, cpus, known_to_runtime=False, moved=moved)
        return Placement(cpus, updates)

    def created(self, container_id: str) -> None:
        """The runtime has stored the container: from now on updates reach it."""
        if container_id in self._tracked:
            self._tracked[container_id].known_to_runtime = True
            self._tracked[container_id].moved = ()

    def prove(self, container_id: str, uses: frozenset[Use]) -> None:
        """The container belongs to claims after all: what it must be told follows from that."""
        if container_id in self._tracked:
            self._tracked[container_id].uses = uses

    def check_start(self, container: Container, division: Division) -> None:
        """Refuses a start that nobody has placed, or on CPUs given to others while the container was being created."""
        tracked = self._tracked.get(container.id)
        if tracked is None:
            raise PlacementError(
                f"container {container.name} was created while the agent was not connected, so that nobody has chosen "
                "its CPUs: the kubelet creates it again"
            )
        if self._strays(tracked, division):
            known = f'CPUs "{tracked.told}"' if tracked.told else "the CPUs"
            raise PlacementError(
                f"{known} of container {container.name} were changed while it was being created: "
                "the kubelet creates it again"
            )

    def cpus_for_update(self, container_id: str, division: Division) -> CpuSet:
        """The CPUs to repeat when the kubelet changes a container's other resources; empty: nothing to say."""
        tracked = self._tracked.get(container_id)
        if tracked is None:
            return EMPTY
        cpus = self._wanted(tracked.uses, division)
        if cpus:
            tracked.told = cpus
        return cpus

    def stopped(self, container_id: str) -> frozenset[str]:
        """The container is gone; answers the claims that it belonged to."""
        tracked = self._tracked.pop(container_id, None)
        if tracked is None:
            return frozenset()
        for moved in tracked.moved:  # containerd applies them only when the creation succeeds
            if moved in self._tracked:
                self._tracked[moved].told = EMPTY
        return frozenset(use.claim_uid for use in tracked.uses)

    def forget_unstored(self, claim_uid: str) -> None:
        """The kubelet has given a claim up: creations of its containers that were never heard of again have failed."""
        for tracked in list(self._tracked.values()):
            if not tracked.known_to_runtime and any(use.claim_uid == claim_uid for use in tracked.uses):
                self.stopped(tracked.container.id)

    def take_updates(self, division: Division, *, growing: bool) -> Iterator[ContainerUpdate]:
        """What to tell the runtime in the reply at hand: always who must leave CPUs, and who may have more if asked."""
        for tracked in self._tracked.values():
            wanted = self._difference(tracked, division)
            if wanted and (growing or self._strays(tracked, division)):
                tracked.told = wanted
                yield ContainerUpdate(tracked.container.id, wanted)

    def next_push(self, division: Division, skip: frozenset[str]) -> ContainerUpdate | None:
        """One container that does not run where it should; those that must leave CPUs come first."""
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
            self._tracked[update.container_id].told = update.cpus

    def push_failed(self, update: ContainerUpdate) -> None:
        """Nobody knows on which CPUs the container runs now: it is told again."""
        if update.container_id in self._tracked:
            self._tracked[update.container_id].told = EMPTY

    def _difference(self, tracked: _Tracked, division: Division) -> CpuSet:
        """The CPUs to tell, empty when there is nothing to tell or nobody to tell it to."""
        if not tracked.known_to_runtime:
            return EMPTY
        wanted = self._wanted(tracked.uses, division)
        return EMPTY if wanted == tracked.told else wanted

    def _wanted(self, uses: frozenset[Use], division: Division) -> CpuSet:
        """Of a claim's CPUs those that are online; a container that has none left runs where it is in nobody's way."""
        granted = union(division.granted.get(use.cdi_device, EMPTY) for use in uses)
        return (granted & division.online) or division.shared

    def _strays(self, tracked: _Tracked, division: Division) -> bool:
        """True when the container may run, as far as the runtime was told, on CPUs of a claim that is not its own."""
        if tracked.told.isdisjoint(division.online):
            return True  # unknown, or all offline: then cgroup v2 lets it run wherever its parent may
        own = union(division.granted.get(use.cdi_device, EMPTY) for use in tracked.uses)
        return not tracked.told.isdisjoint(division.exclusive - own)

    def _forget_failed_creation_of(self, container: Container) -> None:
        """Some runtimes do not tell when a creation failed after our hook (CRI-O); the next attempt has a new id."""
        same = [
            known.container.id
            for known in self._tracked.values()
            if not known.known_to_runtime
            and (known.container.pod_uid, known.container.name) == (container.pod_uid, container.name)
        ]
        for container_id in same:
            self.stopped(container_id)

"""The node's containers while a runtime is connected: answers what each may run on, and what the runtime must be sent.

The board keeps what the runtime has been sent; this object adds the connection itself, and the division of the CPUs
that NodeState works out anew whenever a claim, the settings or the machine changes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from dracpu_agent.placement.board import Board
from dracpu_agent.placement.container import Container, ContainerUpdate, Limits, Placement, RuntimeInfo
from dracpu_agent.placement.division import Division
from dracpu_agent.placement.proof import (
    ClaimKey,
    Evidences,
    UnknownConsumerError,
    UnprovenError,
    Use,
    check_consumers,
    uses_of,
)
from dracpu_agent.placement.sharing import Sharer
from dracpu_agent.placement.tracked import Doubt
from dracpu_api.cpuset import CpuSet


class Connection(Enum):
    """How far the connection to the runtime has come."""

    DISCONNECTED = auto()  # containers may come and go unseen
    SYNCHRONIZED = auto()  # every container is known; the answer is on its way to the runtime
    PUSHABLE = auto()  # the runtime has the answer, so it takes updates that it did not ask for


@dataclass(frozen=True, slots=True)
class UnprovenContainer:
    """A container found running whose claim could not be shown: it was moved to the shared CPUs."""

    container: Container
    reason: str
    claim_to_read: ClaimKey | None  # where the pod may have joined the claim after it was prepared


class Containers:
    """Every container of the node.

    `unused` is called with the claims of a container that has ended, and with None after a synchronization: claims that
    no container uses any more may be released. `changed` is called after every change.
    """

    def __init__(
        self,
        division: Division,
        evidences: Evidences,
        unused: Callable[[frozenset[ClaimKey] | None], None],
        changed: Callable[[], None],
    ) -> None:
        self.runtime = RuntimeInfo()
        self.connection = Connection.DISCONNECTED
        self.division = division
        self._evidences = evidences
        self._board = Board()
        self._ended: set[str] = set()  # until they are removed: a late report of a start or update revives none of them
        self._unused = unused
        self._changed = changed

    def __len__(self) -> int:
        return len(self._board)

    def __iter__(self) -> Iterator[Sharer]:
        """Every container with its part in claims."""
        return iter(self._board)

    @property
    def synchronized(self) -> bool:
        """True while every container of the node is known."""
        return self.connection is not Connection.DISCONNECTED

    def uses(self, claim: ClaimKey) -> bool:
        """True while a container of the claim exists."""
        return self._board.uses(claim)

    def used_claims(self) -> frozenset[ClaimKey]:
        """The claims that any container belongs to."""
        return self._board.used_claims()

    def pods_of(self, claim: ClaimKey) -> frozenset[str]:
        """The UIDs of the pods that have containers of the claim."""
        return self._board.pods_of(claim)

    def pinned(self) -> int:
        """How many containers run on CPUs of claims."""
        return self._board.pinned(self.division)

    # ---- what NodeState decides

    def redivide(self, division: Division, evidences: Evidences) -> None:
        """Claims, settings or the machine have changed, and with them the CPUs that containers should run on."""
        self.division, self._evidences = division, evidences

    def forget_unstored(self, claim: ClaimKey) -> None:
        """The kubelet has given a claim up: creations of its containers that were never reported again have failed."""
        self._board.forget_unstored(claim)

    # ---- the connection

    def connected(self, runtime: RuntimeInfo) -> None:
        """The runtime has reported its name and version; its containers follow."""
        self.runtime = runtime
        self._board.pushes = runtime.unsolicited_updates
        self._changed()

    def synchronize(
        self, containers: Sequence[Container]
    ) -> tuple[tuple[ContainerUpdate, ...], tuple[UnprovenContainer, ...]]:
        """The runtime's complete list of containers -> what is not as it should be, and whose claims are not shown."""
        unproven: list[UnprovenContainer] = []

        def uses(container: Container) -> frozenset[Use]:
            proven, missing = self._uses_or_shared(container)
            if missing is not None:
                unproven.append(missing)
            return proven

        updates = self._board.replace_all(containers, uses, self.division)
        self._ended.clear()
        self.connection = Connection.SYNCHRONIZED
        self._unused(None)
        self._changed()
        return updates, tuple(unproven)

    def allow_pushes(self) -> None:
        """The runtime has the answer to its synchronization: from now on updates can be pushed."""
        self.connection = Connection.PUSHABLE

    def disconnected(self) -> None:
        """Containers may come and go unseen from now on."""
        if self.synchronized:
            self.connection = Connection.DISCONNECTED
            self._changed()

    # ---- a container's life

    def create(self, container: Container) -> Placement:
        """Where a container that is about to be created shall run; raises when its claims are not proven."""
        placement = self._board.create(container, self._uses_of_new(container), self.division)
        self._changed()
        return placement

    def prove_again(self, container: Container) -> None:
        """A running container's claim was read once more; raises when its claims are still not proven."""
        self._board.prove(container.id, self._uses_of(container))
        self._changed()

    def created(self, container_id: str) -> None:
        """The runtime has stored the container."""
        self._board.created(container_id)
        self._changed()

    def begin_start(self, container: Container) -> Doubt | None:
        """The runtime is about to start a container; returns a doubt that only its cgroup can resolve. Raises when the
        container's creation was not reported and its claims are not proven."""
        if container.id in self._ended or not self.synchronized:
            return None
        uses = frozenset() if container.id in self._board else self._uses_of_new(container)
        return self._board.begin_start(container, uses, self.division)

    def resolve(self, doubt: Doubt, cpus: CpuSet | None, limits: Mapping[str, str] | None = None) -> None:
        """The cgroup of the container allows these CPUs, and its files have this content; None: not known."""
        self._board.resolve(doubt, cpus, limits)
        self._changed()

    def check_start(self, container: Container) -> None:
        """Refuses a start that was not placed, on CPUs that are not the container's any more, or without its limits."""
        self._board.check_start(container, self.division)

    def started(self, container: Container) -> UnprovenContainer | None:
        """The container runs; the result is not None for a container whose creation was not reported, and whose claims
        are not shown."""
        unproven = self._notice(container)
        self._board.started(container.id)
        self._changed()
        return unproven

    def repeat(self, container_id: str, memory_limit: int | None = None) -> ContainerUpdate | None:
        """Repeats what a container has when the kubelet updates it, perhaps with another limit of memory; None if there
        is nothing to repeat."""
        return self._board.repeat(container_id, memory_limit, self.division)

    def updated(self, container: Container) -> UnprovenContainer | None:
        """The runtime has carried out the kubelet's update of a container; returns as `started` does."""
        unproven = self._notice(container) if container.started else None
        self._board.updated(container.id, container.memory_limit)
        self._changed()
        return unproven

    def expire(self, container_id: str) -> None:
        """The report that a container is created, started or updated has not come: nothing waits for it any more."""
        self._board.expire(container_id)
        self._changed()

    def unsettled_on(self, cpus: CpuSet, claim: ClaimKey) -> bool:
        """True while another container may come to these CPUs of a claim, whatever the runtime is sent."""
        return self.synchronized and self._board.unsettled_on(cpus, claim)

    def _notice(self, container: Container) -> UnprovenContainer | None:
        """Takes note of a running container whose creation was not reported, as the list was sent meanwhile."""
        if container.id in self._board or container.id in self._ended or not self.synchronized:
            return None
        uses, unproven = self._uses_or_shared(container)
        self._board.found_running(container, uses)
        return unproven

    def ended(self, container_id: str) -> None:
        """A container has ended; CPUs of a lingering claim that no container uses any more become shared again."""
        self._ended.add(container_id)
        self._unused(self._board.stopped(container_id))
        self._changed()

    def removed(self, container_id: str) -> None:
        """A container is gone, so that no more is reported about it; its end may not have been reported."""
        self.ended(container_id)
        self._ended.discard(container_id)

    def stopped(self, container_id: str) -> tuple[ContainerUpdate, ...]:
        """A container has ended, in a hook whose reply can give the others the CPUs that became free."""
        self.ended(container_id)
        if self.runtime.unsolicited_updates:
            return ()
        return self._board.take_updates(self.division, growing=True, repeating=True)

    # ---- containers that run without limits of their claims

    def late(self) -> tuple[tuple[Container, Limits], ...]:
        """These containers, and all limits that each must have; none while it is not known which containers there
        are."""
        return tuple(self._board.late(self.division)) if self.synchronized else ()

    def corrected(self, container_id: str, limits: Mapping[str, str]) -> None:
        """The cgroup of a running container has these limits now."""
        self._board.corrected(container_id, limits)
        self._changed()

    # ---- pushes

    def next_push(self, skip: frozenset[str] = frozenset()) -> ContainerUpdate | None:
        """The next unsolicited update to send; None when every container runs where it should, or none can be sent."""
        if self.connection is not Connection.PUSHABLE or not self.runtime.unsolicited_updates:
            return None
        return self._board.next_push(self.division, skip)

    def pushed(self, update: ContainerUpdate, *, applied: bool) -> None:
        """The runtime has answered an unsolicited update, or has failed to."""
        self._board.pushed(update, applied=applied)

    def _uses_of(self, container: Container) -> frozenset[Use]:
        return uses_of(container, self._evidences, cdi_is_passed=self.runtime.passes_cdi_devices)

    def _uses_of_new(self, container: Container) -> frozenset[Use]:
        """The claims of a container that does not run yet. One that runs uses its claims, whatever is known of it."""
        uses = self._uses_of(container)
        check_consumers(container, uses, self._evidences)
        return uses

    def _uses_or_shared(self, container: Container) -> tuple[frozenset[Use], UnprovenContainer | None]:
        """The claims of a container that runs already; it shares CPUs as long as its claims cannot be shown."""
        try:
            return self._uses_of(container), None
        except UnprovenError as error:
            claim = error.claim if isinstance(error, UnknownConsumerError) else None
            return frozenset(), UnprovenContainer(container, str(error), claim)

"""NodeState: the one synchronous source of truth of a node.

Topology, settings, ledger and containers go in; decisions come out. Every method runs to its end without waiting for
anything, so that reading what is free and taking it is one step whatever the adapters around it do at the same time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dracpu_agent.allocation.machine import Machine
from dracpu_agent.claims.checkpoint import Checkpoint
from dracpu_agent.claims.draining import draining
from dracpu_agent.claims.earmarks import Earmarks
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.granting import Granting
from dracpu_agent.claims.ledger import HeldClaim, Ledger
from dracpu_agent.claims.request import ClaimRefusedError, ClaimRequest
from dracpu_agent.devices.device import Device, Taint
from dracpu_agent.devices.offer import Offer
from dracpu_agent.devices.publish import publish
from dracpu_agent.devices.withheld import Reserve
from dracpu_agent.errors import ClaimError, NotReadyError, SettingsRefusedError
from dracpu_agent.placement.board import Board, Division
from dracpu_agent.placement.container import Container, ContainerUpdate, Placement, RuntimeInfo
from dracpu_agent.placement.proof import Evidences, UnknownConsumerError, UnprovenError, Use, uses_of
from dracpu_agent.topology.change import changed
from dracpu_agent.topology.topology import Topology
from dracpu_api import names
from dracpu_api.cpuset import CpuSet, union, union_by_name
from dracpu_api.settings import CpuNodeSpec, Settings


@dataclass(frozen=True, slots=True)
class Reservation:
    """What `reserve` did, so that a failing transaction can be undone."""

    claim: HeldClaim
    fresh: bool  # False: the ledger held the claim already, nothing was taken


@dataclass(frozen=True, slots=True)
class UnprovenContainer:
    """A container found running whose claim could not be shown: it was moved to the shared pool."""

    container: Container
    reason: str
    claim_to_read: str | None  # the claim's UID, where its pod may have joined the claim unseen


class NodeState:
    """What the node is, was told and has given away."""

    def __init__(self, node_name: str, topology: Topology) -> None:
        self.node_name = node_name
        self.topology = topology
        self.spec: CpuNodeSpec | None = None
        self.runtime = RuntimeInfo()
        self.synchronized = False  # the runtime's containers are known
        self.taints: tuple[Taint, ...] = ()
        self.revision = 0  # grows with every change of what is held or offered
        self._machine = Machine.of(topology)
        self._reserve = Reserve.of(topology)
        self._ledger = Ledger()
        self._former: Settings | None = None  # whose devices are published while the node settles
        self._earmarks = Earmarks(topology, self._machine)
        self._board = Board()
        self._listeners: list[Callable[[], None]] = []
        self._evidences = Evidences({})
        self._division = self._divide()

    # ---- settings

    @property
    def reserved(self) -> CpuSet:
        """CPUs that are not offered; where nothing is reserved, the lowest core is withheld."""
        return self._reserve.under(self._settings)

    @property
    def _settings(self) -> Settings | None:
        return self.spec.settings if self.spec else None

    @property
    def settling(self) -> bool:
        """True while the former devices stay published, closed to new claims, before others replace them."""
        return self._former is not None

    def configure(self, spec: CpuNodeSpec) -> None:
        """Applies settings, or raises and stays on the former ones. Other devices than those that are published appear
        when the node has `settled`."""
        self._apply(spec, self._former or self._settings, self._settings)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on with an earlier agent's settings where it was with them; raises like `configure`."""
        if checkpoint.spec is not None:
            waiting = {claim.uid for claim in checkpoint.spec.outstanding}.difference(self._ledger.claims)
            self._earmarks.restore(checkpoint.earmarks, waiting)
            self._reserve = Reserve.resumed(self.topology, checkpoint.withheld, self._taken())
            self._apply(checkpoint.spec, checkpoint.former, checkpoint.spec.settings)

    def _apply(self, spec: CpuNodeSpec, published: Settings | None, in_force: Settings | None) -> None:
        reserve = self._reserve.going_over(in_force, spec.settings, self._taken())
        reserve.check(spec.settings, self._ledger.held, former=in_force)
        if spec.settings.node_allocatable:
            raise SettingsRefusedError("nodeAllocatable is not supported by this agent: set it to false")
        others = published is not None and published.representation != spec.settings.representation
        self._former = published if others and spec.settle_seconds else None
        self._reserve, self.spec = reserve, spec
        self._changed()

    def settled(self) -> None:
        """The former devices have been closed to new claims for long enough: the others replace them."""
        if self._former is not None:
            self._former = None
            self._changed()

    def deconfigure(self) -> None:
        """No config selects this node any more: nothing is offered, claims keep what they hold."""
        self._reserve = self._reserve.going_over(self._settings, None, self._taken())
        self.spec = self._former = None
        self._changed()

    def replug(self, found: Topology) -> None:
        """CPUs came or went. Claims keep theirs: those that are offline wait for them."""
        topology = changed(self.topology, found)
        self._reserve = self._reserve.on(topology, self._taken(), self._settings)
        self.topology, self._machine = topology, Machine.of(topology)
        self._earmarks.move_to(topology, self._machine)
        self._changed()

    def devices(self) -> tuple[Device, ...]:
        """What to publish now; nothing without settings."""
        if self.spec is None:
            return ()
        settings = self._former or self.spec.settings
        taints = (*self.taints, Taint(names.TAINT_SETTLING)) if self.settling else self.taints
        held = union_by_name([*self._ledger.shares(), *self._earmarks.shares()])
        # while the node settles, what is not given any more is not offered either
        return publish(self.topology, Offer(settings, settings.reserved_cpus | self.reserved, held, taints))

    def draining(self) -> tuple[ClaimRef, ...]:
        """Claims that have CPUs through devices of a former representation, which the slices do not show any more."""
        return draining(self.spec, self._ledger.claims) if self.spec else ()

    def offline(self) -> Mapping[str, CpuSet]:
        """Claims that have CPUs which are not online, by UID, and which ones."""
        held = {uid: claim.cpus - self.topology.online for uid, claim in self._ledger.claims.items()}
        return {uid: cpus for uid, cpus in held.items() if cpus}

    def taint(self, taints: tuple[Taint, ...]) -> None:
        """Keeps new claims off all devices, or lifts that."""
        if taints != self.taints:
            self.taints = taints
            self._changed()

    # ---- claims

    @property
    def claims(self) -> Mapping[str, HeldClaim]:
        """The held claims by UID."""
        return self._ledger.claims

    def reserve(self, request: ClaimRequest) -> Reservation:
        """Grants a claim its CPUs: the same ones as before when it holds some, else the allocator's choice."""
        held = self._ledger.claims.get(request.ref.uid)
        if held is not None and held.digest == request.digest:
            return self._revive(held, request.consumers)
        if self.spec is None:
            raise NotReadyError(f"node {self.node_name} has no settings: no CpuDriverConfig selects it")
        if held is not None and self._board.uses(request.ref.uid):
            raise ClaimRefusedError(
                f"claim {request.ref} was allocated anew, but containers still run on the CPUs of its former "
                "allocation: they have to end first"
            )
        if held is not None:
            self._ledger.release(request.ref.uid)
        try:
            claim = HeldClaim(request.ref, self._granting(self.spec).grants(request), request.consumers, request.digest)
            self._ledger.take(claim)
        except ClaimError:
            if held is not None:
                self._ledger.take(held)
            raise
        self._changed()
        return Reservation(claim, fresh=True)

    def hold(self, uid: str) -> Reservation | None:
        """Answers for a claim that the ledger knows without reading it again; None when it knows none."""
        held = self._ledger.claims.get(uid)
        return None if held is None else self._revive(held, held.consumers)

    def undo(self, reservation: Reservation) -> None:
        """Takes back what `reserve` took; CPUs that a container runs on meanwhile stay held."""
        uid = reservation.claim.ref.uid
        if not reservation.fresh or uid not in self._ledger.claims:
            return
        if self._board.uses(uid):
            self._ledger.set_lingering(uid, lingering=True)
        else:
            self._ledger.release(uid)
        self._changed()

    def release(self, uid: str) -> bool:
        """Ends a claim; False when its containers still run, so that its CPUs linger."""
        if uid not in self._ledger.claims:
            return True
        self._board.forget_unstored(uid)
        in_use = self._board.uses(uid) or not self.synchronized
        if in_use:
            self._ledger.set_lingering(uid, lingering=True)
        else:
            self._ledger.release(uid)
        self._changed()
        return not in_use

    def add_consumers(self, uid: str, consumers: frozenset[str]) -> None:
        """More pods may use a claim than when it was prepared."""
        claim = self._ledger.claims.get(uid)
        if claim is not None and not consumers <= claim.consumers:
            self._ledger.set_consumers(uid, claim.consumers | consumers)
            self._changed()

    # ---- containers

    @property
    def division(self) -> Division:
        """Which CPUs are shared and which are held, now."""
        return self._division

    @property
    def board(self) -> Board:
        """The containers; read only for other rooms."""
        return self._board

    def connected(self, runtime: RuntimeInfo) -> None:
        """The runtime told who it is."""
        self.runtime = runtime
        self._notify()

    def synchronize(
        self, containers: Sequence[Container]
    ) -> tuple[tuple[ContainerUpdate, ...], tuple[UnprovenContainer, ...]]:
        """The runtime's complete list of containers -> what is not as it should be, and whose claims are not shown."""
        unproven: list[UnprovenContainer] = []

        def uses_or_shared(container: Container) -> frozenset[Use]:
            try:
                return self._uses_of(container)
            except UnprovenError as error:
                claim = error.claim_uid if isinstance(error, UnknownConsumerError) else None
                unproven.append(UnprovenContainer(container, str(error), claim))
                return frozenset()

        updates = self._board.replace_all(containers, uses_or_shared, self._division)
        self.synchronized = True
        self._release_lingering(frozenset(self._ledger.claims))
        self._notify()
        return updates, tuple(unproven)

    def disconnected(self) -> None:
        """Containers may come and go unseen from now on."""
        self.synchronized = False
        self._notify()

    def create(self, container: Container) -> Placement:
        """Where a container that is about to be created shall run; raises when its claims are not proven."""
        uses = self._uses_of(container)
        growing = not self.runtime.unsolicited_updates
        placement = self._board.create(container, uses, self._division, growing=growing)
        self._notify()
        return placement

    def prove_again(self, container: Container) -> None:
        """A running container's claim was read once more; raises when its claims are still not proven."""
        self._board.prove(container.id, self._uses_of(container))
        self._notify()

    def created(self, container_id: str) -> None:
        """The runtime has stored the container."""
        self._board.created(container_id)
        self._notify()

    def check_start(self, container: Container) -> None:
        """Refuses a start that was not placed, or on CPUs that are not the container's any more."""
        self._board.check_start(container, self._division)

    def cpus_for_update(self, container_id: str) -> CpuSet:
        """What to repeat when the kubelet updates a container; empty: nothing."""
        return self._board.cpus_for_update(container_id, self._division)

    def ended(self, container_id: str) -> None:
        """A container is gone; CPUs of a lingering claim that nobody uses any more become shared again."""
        claims = self._board.stopped(container_id)
        self._release_lingering(claims)
        self._notify()

    def stopped(self, container_id: str) -> tuple[ContainerUpdate, ...]:
        """The same, in a hook whose reply can tell others what they gain."""
        self.ended(container_id)
        if self.runtime.unsolicited_updates:
            return ()
        return tuple(self._board.take_updates(self._division, growing=True))

    def next_push(self, skip: frozenset[str] = frozenset()) -> ContainerUpdate | None:
        """What an unsolicited update should say next; None when every container runs where it should."""
        if not (self.synchronized and self.runtime.unsolicited_updates):
            return None
        return self._board.next_push(self._division, skip)

    def pushed(self, update: ContainerUpdate, *, applied: bool) -> None:
        """The runtime's answer to an unsolicited update."""
        if applied:
            self._board.pushed(update)
        else:
            self._board.push_failed(update)

    # ---- persistence and change

    def checkpoint(self) -> Checkpoint:
        """Everything that must survive a restart."""
        claims = tuple(self._ledger.claims.values())
        places, withheld = self._earmarks.places, self._reserve.withheld_under(self._settings)
        return Checkpoint(self.node_name, self.spec, claims, self._former, places, withheld)

    def adopt(self, claim: HeldClaim) -> None:
        """Books a claim of an earlier agent; raises LedgerError when its CPUs are another's."""
        self._ledger.take(claim)
        self._reserve = Reserve.of(self.topology, self._taken())
        self._changed()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls back after every change; listeners only take note of it."""
        self._listeners.append(listener)

    # ---- inside

    def _granting(self, spec: CpuNodeSpec) -> Granting:
        return Granting(
            self.node_name,
            self.topology,
            self._machine,
            spec.settings.allocation,
            self.reserved,
            self._ledger.held,
            self._earmarks,
        )

    def _revive(self, held: HeldClaim, consumers: frozenset[str]) -> Reservation:
        if held.lingering:
            held = self._ledger.set_lingering(held.ref.uid, lingering=False)
            self._changed()
        if consumers != held.consumers:
            held = self._ledger.set_consumers(held.ref.uid, consumers)
            self._changed()
        return Reservation(held, fresh=False)

    def _release_lingering(self, uids: frozenset[str]) -> None:
        for uid in uids:
            claim = self._ledger.claims.get(uid)
            if claim is not None and claim.lingering and not self._board.uses(uid):
                self._ledger.release(uid)
                self._changed()

    def _uses_of(self, container: Container) -> frozenset[Use]:
        return uses_of(container, self._evidences, cdi_is_passed=self.runtime.passes_cdi_devices)

    def _taken(self) -> CpuSet:
        """CPUs that claims have, or that are kept for them."""
        return union([self._ledger.held, *(cpus for _, cpus in self._earmarks.shares())])

    def _divide(self) -> Division:
        online, held, reserved = self.topology.online, self._ledger.held, self.reserved
        shared = (online - reserved - held) or ((reserved & online) - held)
        granted = {device: evidence.cpus for device, evidence in self._evidences.by_device.items()}
        return Division(online, shared, granted, held)

    def _changed(self) -> None:
        self.revision += 1
        self._reserve = self._reserve.replenished(self._settings, self._taken())
        self._earmark()
        self._reserve = self._reserve.replenished(self._settings, self._taken())  # out of what is kept no more
        self._evidences = Evidences(self._ledger.claims)
        self._division = self._divide()
        self._notify()

    def _earmark(self) -> None:
        if self.spec is not None:
            available = self.topology.online - self.reserved - self._ledger.held
            spec, held = self.spec, self._ledger.claims
            self._earmarks.update(spec.settings, spec.outstanding, held, available, settling=self.settling)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

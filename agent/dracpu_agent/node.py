"""NodeState: the one synchronous source of truth of a node.

Topology, settings, ledger and containers go in; decisions come out. Every method runs to its end without waiting for
anything, so that reading what is free and taking it is one step whatever the adapters around it do at the same time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dracpu_agent.allocation.machine import Machine
from dracpu_agent.claims.checkpoint import Checkpoint, Kept
from dracpu_agent.claims.draining import draining
from dracpu_agent.claims.earmarks import Earmarks
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.granting import Granting
from dracpu_agent.claims.ledger import HeldClaim, Ledger
from dracpu_agent.claims.request import ClaimRefusedError, ClaimRequest
from dracpu_agent.devices.device import Device, Taint
from dracpu_agent.devices.grouping import ungrouped
from dracpu_agent.devices.offer import Offer
from dracpu_agent.devices.publish import publish
from dracpu_agent.devices.withheld import Withheld
from dracpu_agent.errors import ClaimError, NotReadyError, SettingsRefusedError
from dracpu_agent.placement.board import Division
from dracpu_agent.placement.containers import Containers
from dracpu_agent.placement.proof import Evidences
from dracpu_agent.topology.change import changed
from dracpu_agent.topology.topology import Topology
from dracpu_api import names
from dracpu_api.cpuset import EMPTY, CpuSet, union, union_by_name
from dracpu_api.settings import CpuNodeSpec, Settings


@dataclass(frozen=True, slots=True)
class Granted:
    """The result of `grant`, with which a failing transaction is undone."""

    claim: HeldClaim
    fresh: bool  # False: the ledger held the claim already, nothing was taken


class NodeState:
    """The state of a node: its machine, its settings, and the CPUs that it has granted."""

    def __init__(self, node_name: str, topology: Topology) -> None:
        self.node_name = node_name
        self.topology = topology
        self.spec: CpuNodeSpec | None = None
        self.taints: tuple[Taint, ...] = ()
        self.revision = 0  # grows with every change of what is held or offered
        self._machine = Machine.of(topology)
        self._withheld = Withheld.at_first_start(topology)
        self._ledger = Ledger()
        self._former: Settings | None = None  # whose devices are published while the node settles
        self._earmarks = Earmarks()
        self._evidences = Evidences({})
        self._running_pods: frozenset[str] = frozenset()  # of lingering claims
        self._kept = Kept()  # of the checkpoint of an earlier agent
        self._listeners: list[Callable[[], None]] = []
        self.containers = Containers(self._divide({}), self._release_lingering, self._notify)

    # ---- settings

    @property
    def reserved(self) -> CpuSet:
        """CPUs that are not offered; where the settings reserve none that is online, the lowest core is withheld."""
        return self._withheld.reserved_cpus(self.topology, self._settings)

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
        self._kept = self._kept.without_settings()

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on with an earlier agent's settings where it was with them; raises like `configure`."""
        self._kept = checkpoint.kept
        if checkpoint.spec is not None:
            waiting = {claim.uid for claim in checkpoint.spec.outstanding}.difference(self._ledger.claims)
            self._earmarks.restore(checkpoint.earmarks, waiting)
            self._withheld = Withheld.after_restart(checkpoint.withheld, self.topology, self._taken())
            self._apply(checkpoint.spec, checkpoint.former, checkpoint.spec.settings)

    def _apply(self, spec: CpuNodeSpec, published: Settings | None, in_force: Settings | None) -> None:
        withheld = self._withheld.after_settings(self.topology, in_force, spec.settings, self._taken())
        withheld.check(self.topology, spec.settings, in_force, self._ledger.held)
        if spec.settings != in_force and ungrouped(self.topology, spec.settings) == self.topology.online:
            raise SettingsRefusedError(
                f"groupBy {spec.settings.group_by}: the kernel reports no such groups on this node: choose another one"
            )
        if spec.settings.node_allocatable:
            raise SettingsRefusedError("nodeAllocatable is not supported by this agent: set it to false")
        others = published is not None and published.representation != spec.settings.representation
        self._former = published if others and spec.settle_seconds else None
        self._withheld, self.spec = withheld, spec
        self._changed()

    def settled(self) -> None:
        """The former devices have been closed to new claims for long enough: the others replace them."""
        if self._former is not None:
            self._former = None
            self._changed()

    def deconfigure(self) -> None:
        """No config selects this node any more: nothing is offered, claims keep what they hold."""
        self._withheld = self._withheld.after_settings(self.topology, self._settings, None, self._taken())
        self.spec = self._former = None
        self._kept = self._kept.without_settings()
        self._changed()

    def replug(self, found: Topology) -> bool:
        """Takes over the machine as it was just read; False when nothing has changed. Claims keep CPUs that went
        offline."""
        topology = changed(self.topology, found)
        if topology == self.topology:
            return False
        self._withheld = self._withheld.after_hotplug(self.topology, topology, self._settings, self._taken())
        self.topology, self._machine = topology, Machine.of(topology)
        self._changed()
        return True

    def devices(self) -> tuple[Device, ...]:
        """The devices to publish now; none without settings."""
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

    def ungrouped(self) -> CpuSet:
        """Online CPUs that belong to no group of the settings, so that no device offers them."""
        return ungrouped(self.topology, self.spec.settings) if self.spec else EMPTY

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

    @property
    def division(self) -> Division:
        """Which CPUs are shared and which are held, now."""
        return self.containers.division

    def grant(self, request: ClaimRequest) -> Granted:
        """Grants a claim its CPUs: the CPUs that it holds already, or else the allocator's choice."""
        held = self._ledger.find(request.ref.uid)
        if held is not None and held.digest == request.digest:
            return self._revive(held, request.consumers)
        if self.spec is None:
            raise NotReadyError(
                f"node {self.node_name} has no settings: no CpuDriverConfig selects it, or the condition ConfigApplied "
                "of its CpuNode says why they are not applied"
            )
        if held is not None and self.containers.uses(request.ref.uid):
            raise ClaimRefusedError(
                f"claim {request.ref} was allocated anew, but containers still run on the CPUs of its former "
                "allocation: they have to end first"
            )
        if held is not None:
            self._ledger.release(request.ref.uid)
        try:
            grants = self._granting(self.spec).grants(request)
            claim = HeldClaim(request.ref, grants, request.consumers, request.digest)
            self._ledger.take(claim)
        except ClaimError:
            if held is not None:
                self._ledger.take(held)
            raise
        self._changed()
        return Granted(claim, fresh=True)

    def grant_held(self, uid: str) -> Granted | None:
        """Answers for a claim that the ledger holds, without reading the claim again; None when it holds none."""
        held = self._ledger.find(uid)
        return None if held is None else self._revive(held, held.consumers)

    def undo(self, granted: Granted) -> None:
        """Takes back what `grant` took; CPUs that a container runs on meanwhile stay held."""
        uid = granted.claim.ref.uid
        if not granted.fresh or uid not in self._ledger.claims:
            return
        if self.containers.uses(uid):
            self._ledger.set_lingering(uid, lingering=True)
        else:
            self._ledger.release(uid)
        self._changed()

    def release(self, uid: str) -> bool:
        """Ends a claim; False when its containers still run, so that its CPUs linger."""
        if uid not in self._ledger.claims:
            return True
        self.containers.forget_unstored(uid)
        in_use = self.containers.uses(uid) or not self.containers.synchronized or self._has_processes(uid)
        if in_use:
            self._ledger.set_lingering(uid, lingering=True)
        else:
            self._ledger.release(uid)
        self._changed()
        return not in_use

    def set_consumers(self, uid: str, reserved_for: frozenset[str]) -> None:
        """A claim was read again: its pods are those that it is reserved for, and those whose containers still run."""
        claim = self._ledger.claims.get(uid)
        if claim is not None:
            self._with_consumers(claim, reserved_for)

    def set_running_pods(self, pods: frozenset[str]) -> None:
        """The pods of lingering claims in whose cgroups processes run; the runtime may not list their containers."""
        self._running_pods = pods
        if self.containers.synchronized:
            self._release_lingering(None)

    def kept_for_processes(self) -> frozenset[str]:
        """The lingering claims without containers whose pods have processes all the same."""
        lingering = (uid for uid, claim in self._ledger.claims.items() if claim.lingering)
        return frozenset(uid for uid in lingering if self._has_processes(uid) and not self.containers.uses(uid))

    # ---- persistence and change

    def checkpoint(self) -> Checkpoint:
        """Everything that must survive a restart."""
        claims = tuple(self._ledger.claims.values())
        withheld = self._withheld.cpus(self.topology, self._settings)
        places = self._earmarks.places
        return Checkpoint(self.node_name, self.spec, claims, self._former, places, withheld, self._kept)

    def adopt(self, claim: HeldClaim) -> None:
        """Books a claim of an earlier agent; raises LedgerError when another claim holds its CPUs."""
        self._ledger.take(claim)
        self._withheld = Withheld.at_first_start(self.topology, self._taken())
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

    def _revive(self, held: HeldClaim, consumers: frozenset[str]) -> Granted:
        if held.lingering:
            held = self._ledger.set_lingering(held.ref.uid, lingering=False)
            self._changed()
        return Granted(self._with_consumers(held, consumers), fresh=False)

    def _with_consumers(self, held: HeldClaim, reserved_for: frozenset[str]) -> HeldClaim:
        consumers = reserved_for | self.containers.pods_of(held.ref.uid)
        if consumers != held.consumers:
            held = self._ledger.set_consumers(held.ref.uid, consumers)
            self._changed()
        return held

    def _release_lingering(self, uids: frozenset[str] | None) -> None:
        """Releases those of these claims, whose containers have ended, or of all that linger and that nothing uses."""
        for uid in tuple(self._ledger.claims) if uids is None else uids:
            claim = self._ledger.claims.get(uid)
            if claim is None or not claim.lingering or self.containers.uses(uid):
                continue
            if uids is not None or not self._has_processes(uid):
                self._ledger.release(uid)
                self._changed()

    def _has_processes(self, uid: str) -> bool:
        return not self._ledger.claims[uid].consumers.isdisjoint(self._running_pods)

    def _taken(self) -> CpuSet:
        """CPUs that claims have, or that are kept for them."""
        return union([self._ledger.held, *(cpus for _, cpus in self._earmarks.shares())])

    def _divide(self, granted: Mapping[str, CpuSet]) -> Division:
        online, held, reserved = self.topology.online, self._ledger.held, self.reserved
        shared = (online - reserved - held) or ((reserved & online) - held)
        return Division(online, shared, granted, held)

    def _changed(self) -> None:
        self.revision += 1
        self._withheld = self._withheld.replenished(self.topology, self._settings, self._taken())
        self._earmark()
        # once more, out of CPUs that are not kept for a claim any more
        self._withheld = self._withheld.replenished(self.topology, self._settings, self._taken())
        self._evidences = Evidences(self._ledger.claims, self._evidences)
        granted = {device: evidence.cpus for device, evidence in self._evidences.by_device.items()}
        self.containers.redivide(self._divide(granted), self._evidences)
        self._notify()

    def _earmark(self) -> None:
        if self.spec is not None:
            available = self.topology.online - self.reserved - self._ledger.held
            self._earmarks.update(
                self.topology, self._machine, self.spec, self._ledger.claims, available, settling=self.settling
            )

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

"""The driver dra.cpu: which CPUs are offered under the node's settings, and which ones a claim gets.

It keeps the machine and the settings. What claims hold is in the ledger, which it only reads.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dracpu_agent.allocation.machine import Machine
from dracpu_agent.claims.checkpoint import Checkpoint
from dracpu_agent.claims.cpu_asks import CpuAsk, CpuRequest, read_cpu_request, with_roots
from dracpu_agent.claims.cpu_claim import CpuClaim, CpuGrant, CpuLedger
from dracpu_agent.claims.draining import draining
from dracpu_agent.claims.earmarks import Earmarks, Places
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.granting import Granting
from dracpu_agent.claims.request import ClaimRefusedError, Json
from dracpu_agent.devices.device import Device, Taint
from dracpu_agent.devices.grouping import ungrouped
from dracpu_agent.devices.offer import Offer
from dracpu_agent.devices.publish import publish
from dracpu_agent.devices.withheld import Withheld
from dracpu_agent.drivers.driver import BesideCpus, Driver
from dracpu_agent.errors import NotReadyError, SettingsRefusedError
from dracpu_agent.placement.division import Division
from dracpu_agent.topology.change import changed
from dracpu_agent.topology.topology import Topology
from dracpu_api import names
from dracpu_api.cpuset import EMPTY, CpuSet, union, union_by_name
from dracpu_api.settings import CpuNodeSpec, Settings

if TYPE_CHECKING:
    from dracpu_agent.claims.memory_sizes import MemorySizes


class CpuDriver(Driver[CpuAsk, CpuClaim]):
    """The CPUs of a node."""

    names = names.CPUS
    claim_type = CpuClaim

    def __init__(self, node_name: str, topology: Topology) -> None:
        self._ledger = CpuLedger()
        super().__init__(self._ledger)
        self.topology = topology
        self.spec: CpuNodeSpec | None = None
        self.beside: BesideCpus | None = None  # whose memory the devices can offer, too; None: no driver of memory
        self._node_name = node_name
        self._machine = Machine.of(topology)
        self._withheld = Withheld.at_first_start(topology)
        self._former: Settings | None = None  # whose devices are published while the node settles
        self._earmarks = Earmarks()

    def connect(self, others: Iterable[Driver[Any, Any]]) -> None:
        """Connects the driver with those beside it."""
        for driver in others:
            self.beside = driver.beside_cpus(self._ledger) or self.beside

    # ---- what changes

    @property
    def settling(self) -> bool:
        """True while the former devices stay published, closed to new claims, before others replace them."""
        return self._former is not None

    def configure(self, spec: CpuNodeSpec) -> None:
        """Applies settings, or raises and stays on the former ones. Other devices than those that are published appear
        when the node has `settled`."""
        self._apply(spec, self._former or self._settings, self._settings)

    def resume(self, checkpoint: Checkpoint, spec: CpuNodeSpec) -> None:
        """Goes on with an earlier agent's settings where it was with them; raises like `configure`."""
        waiting = {claim.uid for claim in spec.outstanding}.difference(self._ledger.claims)
        self._earmarks.restore(checkpoint.earmarks, waiting)
        self._withheld = Withheld.after_restart(checkpoint.withheld, self.topology, self._taken())
        self._apply(spec, checkpoint.former, spec.settings)

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

    def settled(self) -> bool:
        """The former devices have been closed to new claims for long enough: the others replace them. False when the
        node was not settling."""
        was_settling, self._former = self.settling, None
        return was_settling

    def deconfigure(self) -> None:
        """No config selects this node any more: nothing is offered, claims keep what they hold."""
        self._withheld = self._withheld.after_settings(self.topology, self._settings, None, self._taken())
        self.spec = self._former = None

    def replug(self, found: Topology) -> bool:
        """Takes over the machine as it was just read; False when nothing has changed. Claims keep CPUs that went
        offline."""
        topology = changed(self.topology, found)
        if topology == self.topology:
            return False
        self._withheld = self._withheld.after_hotplug(self.topology, topology, self._settings, self._taken())
        self.topology, self._machine = topology, Machine.of(topology)
        return True

    def adopted(self) -> None:
        """The ledger has a claim of an earlier agent, which may hold the core that would be withheld."""
        self._withheld = Withheld.at_first_start(self.topology, self._taken())

    def update(self) -> None:
        """Follows a change of the settings, the machine or the ledger."""
        self._withheld = self._withheld.replenished(self.topology, self._settings, self._taken())
        if self.spec is not None:
            available = self.topology.online - self.reserved - self._ledger.held
            self._earmarks.update(
                self.topology, self._machine, self.spec, self._ledger.claims, available, settling=self.settling
            )
        # once more, out of CPUs that are not kept for a claim any more
        self._withheld = self._withheld.replenished(self.topology, self._settings, self._taken())

    # ---- what follows

    @property
    def reserved(self) -> CpuSet:
        """CPUs that are not offered; where the settings reserve none that is online, the lowest core is withheld."""
        return self._withheld.reserved_cpus(self.topology, self._settings)

    @property
    def former(self) -> Settings | None:
        """The settings whose devices are published while the node settles; None when it does not."""
        return self._former

    @property
    def earmarks(self) -> Places:
        """The CPUs that are kept for claims that were allocated before the devices changed."""
        return self._earmarks.places

    @property
    def withheld(self) -> CpuSet:
        """The core that is withheld where the settings reserve no CPU that is online."""
        return self._withheld.cpus(self.topology, self._settings)

    def devices(self, taints: tuple[Taint, ...]) -> tuple[Device, ...]:
        """The devices to publish now; none without settings."""
        if self.spec is None:
            return ()
        settings = self._former or self.spec.settings
        closing = self.settling or (self.beside is not None and self.beside.closes_cpus)
        taints = (*taints, Taint(names.TAINT_SETTLING)) if closing else taints
        held = union_by_name([*self._ledger.shares(), *self._earmarks.shares()])
        beside = {} if self.beside is None else self.beside.capacities_beside_cpus()
        # while the node settles, what is not given any more is not offered either
        return publish(self.topology, Offer(settings, settings.reserved_cpus | self.reserved, held, taints, beside))

    def read(self, ref: ClaimRef, claim: Json) -> CpuRequest:
        """Reads what a ResourceClaim asks of this driver; raises ClaimRefusedError."""
        return read_cpu_request(ref, claim, self._node_name)

    @property
    def aligns(self) -> bool:
        """True where CPUs should be close to the devices of other drivers that the claim has."""
        return bool(self.topology.pcie_roots)

    def aligned(self, request: CpuRequest, roots: Mapping[str, frozenset[str]]) -> CpuRequest:
        """The request with the PCIe roots, by request name, that its CPUs should be close to."""
        return with_roots(request, roots)

    def choose(self, request: CpuRequest) -> tuple[CpuGrant, ...]:
        """The CPUs for a claim, and their memory if it asks for any; raises a ClaimError when it cannot be granted."""
        if self.spec is None:
            raise NotReadyError(
                f"node {self._node_name} has no settings: no CpuDriverConfig selects it, or the condition "
                "ConfigApplied of its CpuNode says why they are not applied"
            )
        granting = Granting(
            self._node_name,
            self.topology,
            self._machine,
            self.spec.settings.allocation,
            self.reserved,
            self._ledger.held,
            self._earmarks,
        )
        memory = self._memory_for(request)
        return tuple(
            replace(grant, memory=own or None) for grant, own in zip(granting.grants(request), memory, strict=True)
        )

    def division(self) -> Division:
        """Which CPUs are shared and which are held, now."""
        online, held, reserved = self.topology.online, self._ledger.held, self.reserved
        shared = (online - reserved - held) or ((reserved & online) - held)
        return Division(online, shared, dict(self._ledger.by_cdi_device()), held)

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

    def used(self, claim: CpuClaim) -> Sequence[Mapping[str, Any]]:
        """How much of the memory of a claim its containers use."""
        return () if self.beside is None or not claim.memory else self.beside.used(claim)

    def problems(self) -> Mapping[str, str]:
        """The devices of which claims hold CPUs that are offline, or memory that is not there any more."""
        grants = (grant for claim in self._ledger.claims.values() for grant in claim.grants)
        # the devices of a frozen claim may be unknown
        held = union_by_name((grant.device, grant.cpus) for grant in grants if grant.device)
        problems = {
            device: _offline_message(offline)
            for device, cpus in held.items()
            if (offline := cpus - self.topology.online)
        }
        of_memory = {} if self.beside is None else self.beside.problems_of_cpus()
        for device, message in of_memory.items():
            problems[device] = f"{problems[device]}; {message}" if device in problems else message
        return problems

    def _memory_for(self, request: CpuRequest) -> "Sequence[MemorySizes | None]":
        if self.beside is not None:
            return self.beside.memory_for(request)
        for ask in request.asks:
            if ask.memory:
                raise ClaimRefusedError(
                    f"claim {request.ref}, request {ask.request}: it asks for memory of device {ask.device}, and this "
                    "node's agent serves CPUs alone: set agent.memory.enabled in the chart's values, or delete the "
                    "pod, so that its replacement is scheduled anew"
                )
        return [None] * len(request.asks)

    @property
    def _settings(self) -> Settings | None:
        return self.spec.settings if self.spec else None

    def _taken(self) -> CpuSet:
        """CPUs that claims have, or that are kept for them."""
        return union([self._ledger.held, *(cpus for _, cpus in self._earmarks.shares())])


def _offline_message(offline: CpuSet) -> str:
    """The message names CPUs and no claims, because pods of every namespace show it."""
    which = f"CPUs {offline}, which claims hold, are" if len(offline) > 1 else f"CPU {offline}, which a claim holds, is"
    others = "containers run on the other CPUs of their claim, or on shared CPUs where it has no others"
    return f"{which} offline or forbidden: {others}"

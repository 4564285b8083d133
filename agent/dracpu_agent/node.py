"""NodeState: the one synchronous source of truth of a node.

Topology, settings, ledgers and containers go in; decisions come out. Every method runs to its end without waiting for
anything, so that reading what is free and taking it is one step whatever the adapters around it do at the same time.

What claims hold is the concern of each driver (drivers/), how they are held is not (drivers/holding.py). This object
connects the drivers with the node's containers, and notifies the rest of the agent of every change.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dracpu_agent.claims.checkpoint import Checkpoint, ClaimKind, Kept
from dracpu_agent.claims.cpu_asks import CpuAsk
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.devices.device import Device, Taint
from dracpu_agent.drivers.cpus import CpuDriver
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.drivers.holding import Holding
from dracpu_agent.placement.container import AtCreation, Container, Limits
from dracpu_agent.placement.containers import Containers
from dracpu_agent.placement.division import Division
from dracpu_agent.placement.proof import ClaimKey, Evidences, Use
from dracpu_agent.placement.sharing import Sharer
from dracpu_agent.topology.topology import Topology
from dracpu_api.settings import CpuNodeSpec


class NodeState:
    """The state of a node: its drivers with their claims, and its containers."""

    def __init__(self, node_name: str, topology: Topology, others: Sequence[Driver[Any, Any]] = ()) -> None:
        """`others` are drivers beside the one of CPUs."""
        self.node_name = node_name
        self.taints: tuple[Taint, ...] = ()
        self.revision = 0  # grows with every change of what is held or offered
        self._kept = Kept()  # of the checkpoint of an earlier agent
        self._states: dict[str, Any] = {}  # likewise, by driver
        self._resumed: CpuNodeSpec | None = None  # settings of that agent, with which other drivers than CPUs go on
        self._listeners: list[Callable[[], None]] = []
        self.cpus = CpuDriver(node_name, topology)
        self.claims: Holding[CpuAsk, CpuClaim] = Holding(self.cpus, self._users, self._changed)
        self._others = tuple(others)
        self.cpus.connect(others)
        holdings = (self.claims, *(Holding(driver, self._users, self._changed) for driver in others))
        self.holdings: Mapping[str, Holding[Any, Any]] = {holding.name: holding for holding in holdings}
        self._evidences = self._evidence()
        self.containers = Containers(self._divide(), self._evidences, self._release_unused, self._notify)

    # ---- settings and machine

    @property
    def spec(self) -> CpuNodeSpec | None:
        """The settings in force; None without."""
        return self.cpus.spec

    @property
    def topology(self) -> Topology:
        """The machine as it was read last."""
        return self.cpus.topology

    def configure(self, spec: CpuNodeSpec) -> None:
        """Applies settings, or raises and stays on the former ones. Other devices than those that are published appear
        when the node has `settled`."""
        for driver in self._others:
            driver.check(spec)
        self.cpus.configure(spec)  # raises before it changes anything
        for driver in self._others:
            driver.configure(spec)
        self._kept, self._resumed = self._kept.without_settings(), None
        self._changed()

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on with an earlier agent's settings where it was with them; raises like `configure`. Drivers beside the
        one of CPUs go on in any case, unchecked: the settings were in force, and the machine may have changed since."""
        self._kept = checkpoint.kept
        self._states = dict(checkpoint.states)
        for driver in self._others:
            if driver.names.driver in self._states:
                driver.restore(self._states[driver.names.driver])
        try:
            if checkpoint.spec is not None:
                for driver in self._others:
                    driver.configure(checkpoint.spec)
                    self._resumed = checkpoint.spec
                self.cpus.resume(checkpoint, checkpoint.spec)  # restores earmarks even if it refuses the settings
        finally:
            self._changed()

    @property
    def settling(self) -> bool:
        """True while former devices stay published, closed to new claims, before others replace them."""
        return any(driver.settling for driver in self.drivers())

    def settled(self) -> None:
        """The former devices have been closed to new claims for long enough: the others replace them."""
        changed = [driver.settled() for driver in self.drivers()]
        if any(changed):
            self._changed()

    def draining(self) -> tuple[ClaimRef, ...]:
        """Claims of devices of a former representation, which the slices do not show any more."""
        return tuple(dict.fromkeys(ref for driver in self.drivers() for ref in driver.draining()))

    def deconfigure(self) -> None:
        """No config selects this node any more: nothing is offered, claims keep what they hold."""
        for driver in self.drivers():
            driver.deconfigure()
        self._kept, self._resumed = self._kept.without_settings(), None
        self._changed()

    def replug(self, found: Topology) -> bool:
        """Takes over the machine as it was just read; False when nothing has changed."""
        if not self.cpus.replug(found):
            return False
        for driver in self._others:
            driver.follow_topology(self.cpus.topology)
        self._changed()
        return True

    def refresh(self) -> None:
        """What a driver can offer has changed."""
        self._changed()

    def devices(self) -> tuple[Device, ...]:
        """The CPU devices to publish now; none without settings."""
        return self.cpus.devices(self.taints)

    def taint(self, taints: tuple[Taint, ...]) -> None:
        """Keeps new claims off all devices, or lifts that."""
        if taints != self.taints:
            self.taints = taints
            self._changed()

    @property
    def division(self) -> Division:
        """Which CPUs are shared and which are held, now."""
        return self.containers.division

    # ---- drivers and claims

    def drivers(self) -> Iterator[Driver[Any, Any]]:
        """Every driver, that of CPUs first."""
        return (holding.driver for holding in self.holdings.values())

    def offers(self, name: str) -> bool:
        """Whether a driver has slices: it has settings, and they do not turn it off."""
        driver = self.holdings[name].driver
        has_settings = self.spec is not None or (self._resumed is not None and driver in self._others)
        return has_settings and driver.offers

    def all_claims(self) -> Iterator[HeldClaim[Any]]:
        """The claims of all drivers; a claim that has devices of two drivers comes twice."""
        return (claim for holding in self.holdings.values() for claim in holding.values())

    def claim_kinds(self) -> tuple[ClaimKind, ...]:
        """The classes of the drivers' claims."""
        return tuple(driver.claim_type for driver in self.drivers())

    # ---- persistence and change

    def checkpoint(self) -> Checkpoint:
        """Everything that must survive a restart."""
        claims, cpus = tuple(self.all_claims()), self.cpus
        present = {driver.names.driver: driver.state() for driver in self._others}
        states = {name: state for name, state in {**self._states, **present}.items() if state is not None}
        spec = self.spec or self._resumed
        return Checkpoint(self.node_name, spec, claims, cpus.former, cpus.earmarks, cpus.withheld, states, self._kept)

    def adopt(self, claim: HeldClaim[Any]) -> None:
        """Books a claim of an earlier agent; raises LedgerError when another claim holds the same."""
        self.holdings[claim.names.driver].take(claim)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls back after every change; listeners only take note of it."""
        self._listeners.append(listener)

    def _users(self) -> Containers:
        return self.containers

    def _release_unused(self, claims: frozenset[ClaimKey] | None) -> None:
        for name, holding in self.holdings.items():
            holding.release_unused(
                None if claims is None else frozenset(uid for driver, uid in claims if driver == name)
            )

    def _evidence(self, former: Evidences | None = None) -> Evidences:
        return Evidences([(holding.driver.names, holding) for holding in self.holdings.values()], former)

    def _divide(self) -> Division:
        division = self.cpus.division()
        if not self._others:
            return division
        return replace(
            division,
            limits_of=self._limits_of,
            limits_revision=self.revision,
            admit=self._admit,
            at_creation=self._at_creation,
        )

    def _admit(self, container: Container, uses: frozenset[Use], sharers: Sequence[Sharer]) -> None:
        for driver in self._others:
            claims = {use.claim for use in uses if driver.concerns(use)}
            others = [
                (sharer.container, _devices_of(driver, sharer.uses))
                for sharer in sharers
                if any(use.claim in claims and driver.concerns(use) for use in sharer.uses)
            ]
            driver.admit(container, _devices_of(driver, uses), others)

    def _at_creation(self, container: Container, uses: frozenset[Use]) -> AtCreation:
        found = [driver.at_creation(container, _devices_of(driver, uses)) for driver in self._others]
        return AtCreation(
            tuple(numa for one in found for numa in one.preferred_nodes),
            tuple(mount for one in found for mount in one.mounts),
        )

    def _limits_of(self, container: Container, uses: frozenset[Use]) -> Limits:
        limits: dict[str, str] = {}
        for driver in self._others:
            limits |= driver.limits(container, _devices_of(driver, uses))
        return tuple(sorted(limits.items()))

    def _changed(self) -> None:
        self.revision += 1
        for driver in self.drivers():
            driver.update()
        self._evidences = self._evidence(self._evidences)
        self.containers.redivide(self._divide(), self._evidences)
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


def _devices_of(driver: Driver[Any, Any], uses: frozenset[Use]) -> frozenset[str]:
    """The CDI devices that concern a driver."""
    return frozenset(use.cdi_device for use in uses if driver.concerns(use))

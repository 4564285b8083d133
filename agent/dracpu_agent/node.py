"""NodeState: the one synchronous source of truth of a node.

Topology, settings, ledger and containers go in; decisions come out. Every method runs to its end without waiting for
anything, so that reading what is free and taking it is one step whatever the adapters around it do at the same time.

What a claim holds is the driver's concern (drivers/), how it is held is not (claims/holding.py). This object connects
the two with the node's containers, and notifies the rest of the agent of every change.
"""

from collections.abc import Callable

from dracpu_agent.claims.checkpoint import Checkpoint, Kept
from dracpu_agent.claims.holding import Holding
from dracpu_agent.claims.ledger import HeldClaim, Ledger
from dracpu_agent.devices.device import Device, Taint
from dracpu_agent.drivers.cpus import CpuDriver
from dracpu_agent.placement.board import Division
from dracpu_agent.placement.containers import Containers
from dracpu_agent.placement.proof import Evidences
from dracpu_agent.topology.topology import Topology
from dracpu_api.settings import CpuNodeSpec


class NodeState:
    """The state of a node: its drivers with their claims, and its containers."""

    def __init__(self, node_name: str, topology: Topology) -> None:
        self.node_name = node_name
        self.taints: tuple[Taint, ...] = ()
        self.revision = 0  # grows with every change of what is held or offered
        self._kept = Kept()  # of the checkpoint of an earlier agent
        self._listeners: list[Callable[[], None]] = []
        self._ledger = Ledger()
        self.cpus = CpuDriver(node_name, topology, self._ledger)
        self.claims = Holding(self._ledger, lambda: self.containers, self.cpus.choose, self._changed)
        self._evidences = Evidences((self.cpus.names,), {})
        self.containers = Containers(self.cpus.division(), self._evidences, self.claims.release_unused, self._notify)

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
        self.cpus.configure(spec)
        self._kept = self._kept.without_settings()
        self._changed()

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on with an earlier agent's settings where it was with them; raises like `configure`."""
        self._kept = checkpoint.kept
        if checkpoint.spec is not None:
            self.cpus.resume(checkpoint, checkpoint.spec)
            self._changed()

    def settled(self) -> None:
        """The former devices have been closed to new claims for long enough: the others replace them."""
        if self.cpus.settled():
            self._changed()

    def deconfigure(self) -> None:
        """No config selects this node any more: nothing is offered, claims keep what they hold."""
        self.cpus.deconfigure()
        self._kept = self._kept.without_settings()
        self._changed()

    def replug(self, found: Topology) -> bool:
        """Takes over the machine as it was just read; False when nothing has changed."""
        if not self.cpus.replug(found):
            return False
        self._changed()
        return True

    def devices(self) -> tuple[Device, ...]:
        """The devices to publish now; none without settings."""
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

    # ---- persistence and change

    def checkpoint(self) -> Checkpoint:
        """Everything that must survive a restart."""
        claims, cpus = tuple(self.claims.values()), self.cpus
        return Checkpoint(self.node_name, self.spec, claims, cpus.former, cpus.earmarks, cpus.withheld, self._kept)

    def adopt(self, claim: HeldClaim) -> None:
        """Books a claim of an earlier agent; raises LedgerError when another claim holds its CPUs."""
        self._ledger.take(claim)
        self.cpus.adopted()
        self._changed()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls back after every change; listeners only take note of it."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        self.revision += 1
        self.cpus.update()
        self._evidences = Evidences((self.cpus.names,), self.claims, self._evidences)
        self.containers.redivide(self.cpus.division(), self._evidences)
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

"""How the agent stands with everybody that it depends on, and what follows: conditions, readiness, taints.

Adapters report here what happened; what it means is worked out from the record alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dracpu_agent.devices.device import Taint
from dracpu_agent.node import NodeState
from dracpu_agent.report import node_status as status
from dracpu_agent.report.node_status import Condition
from dracpu_api import names
from dracpu_api.cpuset import CpuSet

PATIENCE_SECONDS: Final = 10.0  # a restarting runtime is not worth a taint
NAMED: Final = 3  # claims or CPUs in a message

_STATIC: Final = (
    "the kubelet's CPU manager has the policy static, which overrides every pinning: "
    "set cpuManagerPolicy to none, delete cpu_manager_state and restart the kubelet"
)


@dataclass(slots=True)
class Standing:
    """What was heard last from each side."""

    config: Condition = field(
        default_factory=lambda: Condition(
            status.CONFIG_APPLIED, False, "NoSettings", "no CpuDriverConfig selects this node"
        )
    )
    kubelet: Condition = field(
        default_factory=lambda: Condition(
            status.KUBELET_REGISTERED, False, "Waiting", "the kubelet has not registered the driver yet"
        )
    )
    slices: Condition = field(
        default_factory=lambda: Condition(status.SLICES_PUBLISHED, False, "Waiting", "nothing is published yet")
    )
    applied_revision: str = ""  # the revision whose devices stand at the API server
    state_problem: str = ""  # why the checkpoint cannot be written
    state_damage: str = ""  # what was wrong with it at start
    machine_problem: str = ""  # why the machine cannot be read
    static_cpu_manager: bool = False
    unready_since: float | None = None
    settling_since: float | None = None

    def conditions(self, node: NodeState) -> tuple[Condition, ...]:
        """The conditions of the CpuNode's status."""
        return (self._config(node), self._kubelet(), _runtime(node), self.slices, self._state(node))

    def unready(self, node: NodeState) -> list[str]:
        """Why no claim can be prepared at the moment; empty when nothing stands against it."""
        reasons = []
        if not node.synchronized:
            reasons.append("the container runtime is not connected (NRI)")
        if self.state_problem:
            reasons.append(f"the checkpoint cannot be written: {self.state_problem}")
        if self.static_cpu_manager:
            reasons.append(_STATIC)
        return reasons

    def taints(self, node: NodeState, now: float) -> tuple[Taint, ...]:
        """What keeps more pods from being trapped on a node that cannot prepare their claims."""
        if not self.unready(node):
            self.unready_since = None
            return ()
        if self.unready_since is None:
            self.unready_since = now
        if self.static_cpu_manager or now - self.unready_since >= PATIENCE_SECONDS:
            return (Taint(names.TAINT_NOT_READY),)
        return ()

    def has_settled(self, node: NodeState, now: float) -> bool:
        """True when the former devices have been closed to new claims for as long as they should."""
        if node.spec is None or not node.settling:
            self.settling_since = None
            return False
        if self.settling_since is None:
            self.settling_since = now
        return now - self.settling_since >= node.spec.settle_seconds

    def _config(self, node: NodeState) -> Condition:
        """The settings may be applied, and yet not true of every CPU: claims keep what they have."""
        if not self.config.true or node.spec is None:
            return self.config
        if node.settling:
            message = f"the former devices stay published for {node.spec.settle_seconds} s, closed to new claims"
            return Condition(status.CONFIG_APPLIED, False, "Settling", message)
        keeping = [claim for claim in node.claims.values() if not claim.cpus.isdisjoint(node.reserved)]
        if keeping:
            named = _some([f"{claim.ref} ({claim.cpus & node.reserved})" for claim in keeping])
            message = f"reserved CPUs are still held by claims, which keep them until their pods end: {named}"
            return Condition(status.CONFIG_APPLIED, True, "ReservedCPUsHeld", message)
        if draining := node.draining():
            message = f"claims of the former devices keep their CPUs until their pods end: {_some(map(str, draining))}"
            return Condition(status.CONFIG_APPLIED, True, "Draining", message)
        return self.config

    def _kubelet(self) -> Condition:
        if self.static_cpu_manager:
            return Condition(status.KUBELET_REGISTERED, False, "StaticCPUManager", _STATIC)
        return self.kubelet

    def _state(self, node: NodeState) -> Condition:
        """What harms claims comes first; the others are there to be read."""
        if self.state_problem:
            message = f"the checkpoint cannot be written, no claim is prepared until it can: {self.state_problem}"
            return Condition(status.STATE_HEALTHY, False, "WriteFailed", message)
        remarks = list(self._remarks(node))
        reason = remarks[0][0] if remarks else "Healthy"
        return Condition(status.STATE_HEALTHY, True, reason, "; ".join(message for _, message in remarks))

    def _remarks(self, node: NodeState) -> Iterable[tuple[str, str]]:
        if offline := node.offline():
            yield (
                "CPUsOffline",
                f"CPUs of claims are offline, the claims keep them until their pods end: {name_offline(node, offline)}",
            )
        if self.machine_problem:
            yield "MachineUnreadable", f"what was known of the machine stays in force: {self.machine_problem}"
        if self.state_damage:
            yield "Rebuilt", f"the checkpoint was damaged and has been rebuilt: {self.state_damage}"
        if incomplete := node.topology.incomplete:
            named = _some(f"CPU {cpu} ({reason})" for cpu, reason in incomplete.items())
            yield "CPUsIncomplete", f"online CPUs that the kernel does not describe are not offered: {named}"


def name_offline(node: NodeState, offline: Mapping[str, CpuSet]) -> str:
    """Some claims with those of their CPUs that are offline; given by UID."""
    return _some(f"{node.claims[uid].ref} ({cpus})" for uid, cpus in offline.items())


def _some(things: Iterable[str]) -> str:
    named = list(things)
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more


def _runtime(node: NodeState) -> Condition:
    if not node.synchronized:
        message = "the container runtime is not connected: is NRI enabled in its configuration?"
        return Condition(status.RUNTIME_CONNECTED, False, "Disconnected", message)
    if not node.runtime.unsolicited_updates:
        message = (
            f"{node.runtime.name} {node.runtime.version} cannot take updates at any time (NRI before 0.12.1): "
            "containers learn of CPUs that became free only when another container is created or stopped"
        )
        return Condition(status.RUNTIME_CONNECTED, True, "ConnectedWithoutUpdates", message)
    return Condition(status.RUNTIME_CONNECTED, True, "Connected")

"""The conditions of the CpuNode, and whether claims can be prepared, as functions of the node and of what each side
that the agent depends on reported last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.record import kind_of
from dracpu_agent.cluster.slices.controller import SlicesState
from dracpu_agent.kubelet.registration import RegistrationStatus
from dracpu_agent.node import NodeState
from dracpu_api.conditions import NodeCondition, NodeReason
from dracpu_api.cpuset import CpuSet

NAMED: Final = 3  # claims or CPUs in a message

_STATIC: Final = (
    "the kubelet's CPU manager has the policy static, which overrides every pinning: "
    "set cpuManagerPolicy to none, delete cpu_manager_state and restart the kubelet"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """One aspect of the node; the message names what to do where it is not true."""

    type: NodeCondition
    true: bool
    reason: str  # a NodeReason, or one of the API server
    message: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """The last report of each side. Every value is owned by the part of the agent that deals with that side."""

    config: Condition
    registration: RegistrationStatus | None  # None: the kubelet has not answered yet
    slices: SlicesState
    checkpoint_problem: str = ""  # why the checkpoint cannot be written
    checkpoint_damage: str = ""  # what was wrong with it when the agent started
    machine_problem: str = ""  # why the machine cannot be read
    static_cpu_manager: bool = False
    without_cpuset: str = ""  # the cgroup that lacks the cpuset controller, so that no container can be pinned
    memory: tuple[Condition, ...] = ()  # none where this agent does not serve memory, or the settings do not enable it

    @property
    def needs_repair(self) -> bool:
        """True if no claim can be prepared until somebody changes the node."""
        return self.static_cpu_manager or bool(self.without_cpuset)


def worst_slices(states: Mapping[str, SlicesState]) -> SlicesState:
    """The slices of all drivers as one state: slices that are not published come first, then dropped fields. The error
    of another driver than that of CPUs, which is the first, names it."""
    first, *_ = states.values()
    unpublished = [item for item in states.items() if not item[1].published]
    incomplete = [item for item in states.items() if item[1].error]
    for driver, state in unpublished + incomplete:
        return state if state is first else replace(state, error=state.error and f"driver {driver}: {state.error}")
    return first


def worst_registration(results: Mapping[str, RegistrationStatus | None]) -> RegistrationStatus | None:
    """The registrations of all drivers as one result: a refusal comes first, then None while one is missing."""
    for driver, result in results.items():
        if result is not None and not result.registered:
            return RegistrationStatus(False, f"driver {driver}: {result.error}" if len(results) > 1 else result.error)
    return RegistrationStatus(True) if all(results.values()) else None


def conditions_of(node: NodeState, standing: Standing) -> tuple[Condition, ...]:
    """The conditions of the CpuNode's status."""
    slices = standing.slices
    return (
        _config(node, standing.config),
        _kubelet(standing),
        _runtime(node, standing),
        Condition(NodeCondition.SLICES_PUBLISHED, slices.published, slices.reason, slices.error or ""),
        _state(node, standing),
        *_memory(node, standing.memory),
    )


def unready(node: NodeState, standing: Standing) -> list[str]:
    """Why no claim can be prepared at the moment; empty when claims can be prepared."""
    reasons = []
    if standing.without_cpuset:
        reasons.append(_no_cpuset(standing))
    elif not node.containers.synchronized:
        reasons.append("the container runtime is not connected (NRI)")
    if standing.checkpoint_problem:
        reasons.append(f"the checkpoint cannot be written: {standing.checkpoint_problem}")
    if standing.static_cpu_manager:
        reasons.append(_STATIC)
    return reasons


def unregistered(standing: Standing) -> list[str]:
    """Why the kubelet sends no claims; empty when the driver is registered."""
    registered = standing.registration is not None and standing.registration.registered
    return [] if registered else [_registration(standing.registration).message]


def name_offline(node: NodeState, offline: Mapping[str, CpuSet]) -> str:
    """Names some claims, given by UID, with those of their CPUs that are offline."""
    return some_of(f"{node.claims[uid].ref} ({cpus})" for uid, cpus in offline.items())


def name_claims(claims: Iterable[ClaimRef]) -> str:
    """Names some of the claims."""
    return some_of(map(str, claims))


def _config(node: NodeState, applied: Condition) -> Condition:
    """The settings may be applied, and yet not hold for every CPU: claims keep what they have."""
    if not applied.true or node.spec is None:
        return applied
    if node.settling:
        message = f"the former devices stay published for {node.spec.settle_seconds} s, closed to new claims"
        return Condition(NodeCondition.CONFIG_APPLIED, False, NodeReason.SETTLING, message)
    keeping = [claim for claim in node.claims.values() if not claim.cpus.isdisjoint(node.cpus.reserved)]
    if keeping:
        named = some_of([f"{claim.ref} ({claim.cpus & node.cpus.reserved})" for claim in keeping])
        message = f"reserved CPUs are still held by claims, which keep them until their pods end: {named}"
        return Condition(NodeCondition.CONFIG_APPLIED, True, NodeReason.RESERVED_CPUS_HELD, message)
    if draining := node.draining():
        message = (
            f"claims of the former devices keep what they hold until their pods end: {some_of(map(str, draining))}"
        )
        return Condition(NodeCondition.CONFIG_APPLIED, True, NodeReason.DRAINING, message)
    if ungrouped := node.cpus.ungrouped():
        message = (
            f"no device offers CPUs {ungrouped}: the kernel reports no group for them, pods without claims use them"
        )
        return Condition(NodeCondition.CONFIG_APPLIED, True, NodeReason.CPUS_NOT_GROUPED, message)
    return applied


def _kubelet(standing: Standing) -> Condition:
    if standing.static_cpu_manager:
        return Condition(NodeCondition.KUBELET_REGISTERED, False, NodeReason.STATIC_CPU_MANAGER, _STATIC)
    return _registration(standing.registration)


def _registration(status: RegistrationStatus | None) -> Condition:
    if status is None:
        return Condition(
            NodeCondition.KUBELET_REGISTERED, False, NodeReason.WAITING, "the kubelet has not registered the driver yet"
        )
    if not status.registered:
        return Condition(NodeCondition.KUBELET_REGISTERED, False, NodeReason.REFUSED, status.error)
    return Condition(NodeCondition.KUBELET_REGISTERED, True, NodeReason.REGISTERED)


def _runtime(node: NodeState, standing: Standing) -> Condition:
    if standing.without_cpuset:
        reason = NodeReason.CPUSET_NOT_DELEGATED
        return Condition(NodeCondition.RUNTIME_CONNECTED, False, reason, _no_cpuset(standing))
    if not node.containers.synchronized:
        message = "the container runtime is not connected: is NRI enabled in its configuration?"
        return Condition(NodeCondition.RUNTIME_CONNECTED, False, NodeReason.DISCONNECTED, message)
    runtime = node.containers.runtime
    if not runtime.unsolicited_updates:
        message = (
            f"{runtime.name} {runtime.version} cannot take updates at any time (NRI before 0.12.1): containers get "
            "CPUs that became free only when another container is created or stopped"
        )
        return Condition(NodeCondition.RUNTIME_CONNECTED, True, NodeReason.CONNECTED_WITHOUT_UPDATES, message)
    return Condition(NodeCondition.RUNTIME_CONNECTED, True, NodeReason.CONNECTED)


def _no_cpuset(standing: Standing) -> str:
    return (
        f"the cgroup {standing.without_cpuset} lacks the cpuset controller, so no container can be pinned: the agent "
        "leaves all containers as they are; enable the controller, or delegate it to this cgroup"
    )


def _memory(node: NodeState, served: Iterable[Condition]) -> Iterable[Condition]:
    found = tuple(served)
    yield from found
    if not found and node.spec is not None and node.spec.settings.memory.enabled:
        yield Condition(
            NodeCondition.MEMORY_READY,
            False,
            NodeReason.NOT_SERVED,
            "the settings enable memory, but this agent serves CPUs alone: install the chart with "
            "agent.memory.enabled=true, or set memory.enabled to false",
        )


def _state(node: NodeState, standing: Standing) -> Condition:
    """The problem that keeps claims from being prepared comes first; remarks leave the condition true."""
    if standing.checkpoint_problem:
        message = f"the checkpoint cannot be written, no claim is prepared until it can: {standing.checkpoint_problem}"
        return Condition(NodeCondition.STATE_HEALTHY, False, NodeReason.WRITE_FAILED, message)
    remarks = list(_remarks(node, standing))
    reason = remarks[0][0] if remarks else NodeReason.HEALTHY
    return Condition(NodeCondition.STATE_HEALTHY, True, reason, "; ".join(message for _, message in remarks))


def _is_of_memory(claim: HeldClaim[Any]) -> bool:
    record = claim.frozen.record if claim.frozen is not None else None
    return kind_of(record) == "memory"


def _remarks(node: NodeState, standing: Standing) -> Iterable[tuple[NodeReason, str]]:
    frozen = [claim for claim in node.all_claims() if claim.frozen is not None]
    if of_memory := [claim for claim in frozen if _is_of_memory(claim) and len(node.holdings) == 1]:
        yield (
            NodeReason.CLAIMS_FROZEN,
            "there are claims of memory, and this agent serves CPUs alone: install the chart with "
            "agent.memory.enabled=true; until then, pods that use these claims cannot be deleted, and containers of "
            f"them that restart have no limits of memory: {some_of(str(claim.ref) for claim in of_memory)}",
        )
        frozen = [claim for claim in frozen if claim not in of_memory]
    if frozen:
        named = some_of(f"{claim.ref} ({claim.content})" for claim in frozen)
        yield (
            NodeReason.CLAIMS_FROZEN,
            "a newer agent prepared claims whose records this agent cannot read; they keep what they hold: install the "
            f"newer version again, or delete the pods that use them: {named}",
        )
    if offline := node.cpus.offline():
        yield (
            NodeReason.CPUS_OFFLINE,
            "CPUs of claims are offline or forbidden, the claims keep them until their pods end: "
            + name_offline(node, offline),
        )
    if standing.machine_problem:
        yield (
            NodeReason.MACHINE_UNREADABLE,
            f"the agent works with the last topology that it could read: {standing.machine_problem}",
        )
    if standing.checkpoint_damage:
        yield NodeReason.REBUILT, f"the checkpoint could not be used and has been rebuilt: {standing.checkpoint_damage}"
    if incomplete := node.topology.incomplete:
        named = some_of(f"CPU {cpu} ({reason})" for cpu, reason in incomplete.items())
        yield NodeReason.CPUS_INCOMPLETE, f"online CPUs that the kernel does not describe are not offered: {named}"
    if forbidden := node.topology.forbidden:
        yield (
            NodeReason.CPUS_FORBIDDEN,
            f"CPUs {forbidden} are not offered: pods cannot use them, because they are outside of the cpuset of the "
            "cgroup that contains all pods",
        )
    if isolated := node.topology.isolated & (node.topology.online - node.cpus.reserved):
        yield (
            NodeReason.CPUS_ISOLATED,
            f"the kernel does not balance CPUs {isolated} (isolcpus), on which containers without claims may run: "
            "their threads stay where they start; remove isolcpus from the kernel's command line",
        )


def some_of(things: Iterable[str]) -> str:
    """Names some of the things."""
    named = list(things)
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more

"""The conditions of the CpuNode that are about memory."""

from collections.abc import Collection
from typing import Final

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.drivers.memory_promises import memory_of
from dracpu_agent.report.conditions import Condition, some_of
from dracpu_api.conditions import NodeCondition, NodeReason
from dracpu_api.quantity import format_binary

_STATIC: Final = (
    "the kubelet's memory manager has the policy Static: it binds Guaranteed pods to NUMA nodes, and what claims hold "
    "there is not in its records; set memoryManagerPolicy to None, delete memory_manager_state and restart the kubelet"
)


def memory_condition(
    driver: MemoryDriver,
    *,
    unreadable: str,
    not_writable: str,
    without_limits: str = "",
    not_provisioned: str = "",
    static_manager: bool = False,
) -> Condition | None:
    """Whether claims of memory get what they ask for; None where the settings do not enable memory. `unreadable` is why
    the machine's memory cannot be read, `not_writable` why limits of pods' hugepages cannot be written,
    `without_limits` why not even ordinary memory can be limited, and `not_provisioned` why there are fewer hugepages
    than the settings name. With `static_manager`, the kubelet binds pods, too."""
    if not (driver.enabled or driver.settling or driver.promised()):
        return None
    kind = NodeCondition.MEMORY_READY
    if unlimited := _unlimited(driver, not_writable, without_limits):
        return Condition(kind, False, NodeReason.LIMITS_NOT_WRITABLE, unlimited)
    if broken := broken_promises(driver):
        return Condition(kind, False, NodeReason.PROMISE_NOT_KEPT, broken)
    remarks = []
    if static_manager:
        remarks.append((NodeReason.STATIC_MEMORY_MANAGER, _STATIC))
    if unreadable:
        remarks.append((NodeReason.MEMORY_UNREADABLE, f"the agent works with what it read last: {unreadable}"))
    if driver.system is None:
        message = "ordinary memory is offered when the kubelet has reported how much of it pods can have"
        remarks.append((NodeReason.WAITING, message))
    if not_provisioned:
        remarks.append((NodeReason.PROVISION_INCOMPLETE, not_provisioned))
    reason = remarks[0][0] if remarks else NodeReason.READY
    return Condition(kind, True, reason, "; ".join(message for _, message in remarks))


def broken_promises(driver: MemoryDriver) -> str:
    """Of which memory claims were promised more than there is, and which claims; "" where there is enough."""
    missing = driver.missing()
    if not missing:
        return ""
    lacking = ", ".join(f"{format_binary(size)} of {place}" for place, size in sorted(missing.items()))
    claims = (claim for claim in driver.claims().values() if not missing.keys().isdisjoint(memory_of(claim)))
    return (
        f"claims were promised more than there is: {lacking} are lacking, because pages were taken away or the "
        "settings reserve more; nothing more is promised there until claims end or pages come back; claims on it are "
        f"{some_of(sorted(str(claim.ref) for claim in claims))}"
    )


def shared_pages_condition(driver: MemoryDriver) -> Condition | None:
    """The hugepages that claims and the specs of pods are offered at the same time; None where there are none."""
    shared = driver.shared_pages()
    if not shared:
        return None
    sizes = ", ".join(f"{format_binary(size)} of {kind}" for kind, size in shared.items())
    message = (
        f"pods may request the same hugepages in their spec: {sizes}; a claim is not prepared while such pods use its "
        "pages or may still take them: reserve what they need with memory.reserved, or forbid such requests with "
        "ResourceQuotas"
    )
    return Condition(NodeCondition.PAGES_SHARED, True, NodeReason.PAGES_ALLOCATABLE, message)


def not_counted_condition(pods: Collection[str]) -> Condition | None:
    """The pods whose memory requests do not cover their claims; None where there are none."""
    if not pods:
        return None
    message = (
        f"the memory requests of {len(pods)} {'pod' if len(pods) == 1 else 'pods'} do not cover the claims, so "
        f"that the kubelet evicts them first when memory is short: {some_of(sorted(pods))}; set the memory requests of "
        "their containers to what they claim"
    )
    return Condition(NodeCondition.NOT_COUNTED, True, NodeReason.REQUESTS_BELOW_CLAIMS, message)


def _unlimited(driver: MemoryDriver, not_writable: str, without_limits: str) -> str:
    """Which claims get nothing because it cannot be limited, and why; "" if there are none."""
    if without_limits:
        return f"no claim gets memory or hugepages: {without_limits}"
    return f"no claim gets hugepages: {not_writable}" if not_writable and _has_pages(driver) else ""


def _has_pages(driver: MemoryDriver) -> bool:
    return any(place.kind.is_huge for place in (*driver.room(), *driver.promised()))

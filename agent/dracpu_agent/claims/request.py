"""Reads from an allocated ResourceClaim what it asks of one driver on this node, or refuses the claim with the reason.

Each driver reads the results of its own devices: cpu_asks.py those of CPUs.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.errors import ClaimError

Json = Mapping[str, Any]


class ClaimRefusedError(ClaimError):
    """This node cannot serve the claim as it is allocated."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One allocation result of a driver."""

    request: str  # "main", or "main/sub" for a prioritized list
    pool: str
    device: str
    share_id: str | None

    def terms(self) -> list[Any]:
        """The other values that the allocation depends on, for its digest."""
        return []


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """A claim's allocation, as far as it concerns one driver."""

    ref: ClaimRef
    results: Sequence[Json]
    configs: Sequence[Json]  # parameters for this driver, of the claim and of its DeviceClasses

    def refused(self, result: Json, reason: str) -> ClaimRefusedError:
        """The error for one of the results."""
        return ClaimRefusedError(f"claim {self.ref}, request {result['request']}: {reason}")

    def amount(self, result: Json, capacity: str) -> str:
        """The quantity of a capacity that one of the results consumes; refuses a result without one."""
        quantity = (result.get("consumedCapacity") or {}).get(capacity)
        if quantity is None:
            raise self.refused(
                result,
                f"device {result['device']} was allocated without an amount of {capacity}; the cluster needs the "
                "feature gate DRAConsumableCapacity",
            )
        return str(quantity)

    def results_of(self, result: Json) -> int:
        """How many results the request of a result has; sub-requests of a prioritized list count together."""
        own = result["request"].partition("/")[0]
        return sum(own == other["request"].partition("/")[0] for other in self.results)


A = TypeVar("A", bound=Ask)


@dataclass(frozen=True, slots=True)
class ClaimRequest(Generic[A]):
    """All that a claim asks of a driver on this node."""

    ref: ClaimRef
    asks: tuple[A, ...]
    consumers: frozenset[str]  # UIDs of the pods that the claim is reserved for
    digest: str  # of the allocation: another digest under the same UID is another allocation


def read_request(
    ref: ClaimRef, claim: Json, node_name: str, driver: str, read_ask: Callable[[ClaimAllocation, Json], A]
) -> ClaimRequest[A]:
    """Reads a ResourceClaim object and ignores the results of other drivers; `read_ask` reads one result."""
    uid = claim.get("metadata", {}).get("uid")
    if uid != ref.uid:
        raise ClaimRefusedError(
            f"claim {ref} was deleted and created again (UID {uid}, but the kubelet prepares {ref.uid}): delete the pod"
        )
    allocated = (claim.get("status") or {}).get("allocation")
    if not allocated:
        raise ClaimRefusedError(f"claim {ref} is not allocated: delete the pod, so that its replacement is scheduled")
    devices = allocated.get("devices") or {}
    results = [result for result in devices.get("results") or () if result.get("driver") == driver]
    if not results:
        raise ClaimRefusedError(f"claim {ref} has no device of driver {driver} in its allocation")
    configs = [config for config in devices.get("config") or () if (config.get("opaque") or {}).get("driver") == driver]
    allocation = ClaimAllocation(ref, results, configs)
    for result in results:
        _check(allocation, result, node_name)
    asks = tuple(read_ask(allocation, result) for result in results)
    return ClaimRequest(ref, asks, frozenset(consumer_uids(claim)), _digest(asks))


def consumer_uids(claim: Json) -> Iterable[str]:
    """The UIDs of the pods that may use the claim."""
    for consumer in (claim.get("status") or {}).get("reservedFor") or ():
        if consumer.get("resource") == "pods" and not consumer.get("apiGroup"):
            yield consumer["uid"]


def _check(allocation: ClaimAllocation, result: Json, node_name: str) -> None:
    if result["pool"] != node_name:
        raise ClaimRefusedError(
            f'claim {allocation.ref} has device {result["device"]} of node "{result["pool"]}", but this is node '
            f'"{node_name}"'
        )
    if result.get("adminAccess"):
        raise allocation.refused(result, "adminAccess has no meaning for this driver, remove it from the claim")


def _digest(asks: Iterable[Ask]) -> str:
    """The digest covers only what is asked, so that fields of a newer API server do not make another allocation."""
    items = [[ask.request, ask.pool, ask.device, ask.share_id, *ask.terms()] for ask in asks]
    return hashlib.sha256(json.dumps(items, separators=(",", ":")).encode()).hexdigest()

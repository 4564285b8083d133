"""Reads from an allocated ResourceClaim what it asks of this node, or refuses the claim with the reason.

Nothing is rounded or guessed here: the scheduler has rounded, and an amount that is not a whole number of CPUs means
that the claim was not allocated for the devices that this node publishes.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.parameters import ClaimParameters, parameters_for
from dracpu_agent.errors import ClaimError
from dracpu_api import names
from dracpu_api.quantity import whole_cpus

Json = Mapping[str, Any]


class ClaimRefusedError(ClaimError):
    """This node cannot serve the claim as it is allocated."""


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """One allocation result of our driver."""

    request: str  # "main", or "main/sub" for a prioritized list
    pool: str
    device: str
    share_id: str | None
    amount: int | None  # None: the device is not shared; the claim gets all of it
    parameters: ClaimParameters
    roots: frozenset[str] = frozenset()  # PCIe roots that its CPUs should be close to; not part of the allocation


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """All that a claim asks of this node."""

    ref: ClaimRef
    asks: tuple[DeviceAsk, ...]
    consumers: frozenset[str]  # UIDs of the pods that the claim is reserved for
    digest: str  # of the allocation: another digest under the same UID is another allocation

    def with_roots(self, roots: Mapping[str, frozenset[str]]) -> "ClaimRequest":
        """This request with the PCIe roots, by request name, that its CPUs should be close to."""
        asks = tuple(replace(ask, roots=roots.get(ask.request, frozenset())) for ask in self.asks)
        return replace(self, asks=asks)


def read_request(ref: ClaimRef, claim: Json, node_name: str) -> ClaimRequest:
    """Reads a ResourceClaim object and ignores the results of other drivers."""
    uid = claim.get("metadata", {}).get("uid")
    if uid != ref.uid:
        raise ClaimRefusedError(
            f"claim {ref} was deleted and created again (UID {uid}, but the kubelet prepares {ref.uid}): delete the pod"
        )
    status = claim.get("status") or {}
    allocation = status.get("allocation")
    if not allocation:
        raise ClaimRefusedError(f"claim {ref} is not allocated: delete the pod, so that its replacement is scheduled")
    devices = allocation.get("devices") or {}
    results = [result for result in devices.get("results") or () if result.get("driver") == names.DRIVER]
    if not results:
        raise ClaimRefusedError(f"claim {ref} has no device of driver {names.DRIVER} in its allocation")
    configs = [
        config for config in devices.get("config") or () if (config.get("opaque") or {}).get("driver") == names.DRIVER
    ]
    asks = tuple(_ask(ref, result, results, configs, node_name) for result in results)
    return ClaimRequest(ref, asks, frozenset(consumer_uids(claim)), _digest(asks))


def consumer_uids(claim: Json) -> Iterable[str]:
    """The UIDs of the pods that may use the claim."""
    for consumer in (claim.get("status") or {}).get("reservedFor") or ():
        if consumer.get("resource") == "pods" and not consumer.get("apiGroup"):
            yield consumer["uid"]


def _ask(ref: ClaimRef, result: Json, results: Iterable[Json], configs: Iterable[Json], node_name: str) -> DeviceAsk:
    request, pool, device = result["request"], result["pool"], result["device"]
    if pool != node_name:
        raise ClaimRefusedError(f'claim {ref} has device {device} of node "{pool}", but this is node "{node_name}"')
    if result.get("adminAccess"):
        raise ClaimRefusedError(
            f"claim {ref}, request {request}: adminAccess has no meaning for CPUs, remove it from the claim"
        )
    parameters = parameters_for(request, configs)
    if parameters.cpuset is not None and sum(_same_request(request, other["request"]) for other in results) > 1:
        raise ClaimRefusedError(
            f'claim {ref}, request {request}: the cpuset "{parameters.cpuset}" cannot apply to several devices: '
            "use a separate request with its own config for each device"
        )
    return DeviceAsk(request, pool, device, result.get("shareID"), _amount(ref, result), parameters)


def _same_request(request: str, other: str) -> bool:
    return request.partition("/")[0] == other.partition("/")[0]


def _amount(ref: ClaimRef, result: Json) -> int | None:
    consumed = result.get("consumedCapacity")
    if consumed is None:
        return None
    quantity = consumed.get(names.CAPACITY_CPU)
    if quantity is None:
        raise ClaimRefusedError(
            f"claim {ref}, request {result['request']}: device {result['device']} was allocated without an amount of "
            f"{names.CAPACITY_CPU}; the cluster needs the feature gate DRAConsumableCapacity"
        )
    amount = whole_cpus(str(quantity))
    if amount is None:
        raise ClaimRefusedError(
            f"claim {ref}, request {result['request']} asks for {quantity} of {names.CAPACITY_CPU}: request a "
            "whole number of at least 1"
        )
    return amount


def _digest(asks: Iterable[DeviceAsk]) -> str:
    """The digest covers only what is asked, so that fields of a newer API server do not make another allocation."""
    items = [[ask.request, ask.pool, ask.device, ask.share_id, ask.amount, ask.parameters.as_json()] for ask in asks]
    return hashlib.sha256(json.dumps(items, separators=(",", ":")).encode()).hexdigest()

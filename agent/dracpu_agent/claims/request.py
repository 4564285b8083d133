"""An allocated claim, as the API server keeps it -> what is asked of this node, or a refusal that says why.

Nothing is rounded or guessed here: the scheduler has rounded, and an amount that is not a whole number of CPUs means
that the claim was not allocated for what this node publishes.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.parameters import ClaimParameters, parameters_for
from dracpu_agent.claims.quantity import whole_cpus
from dracpu_agent.errors import ClaimError
from dracpu_api import names

Json = Mapping[str, Any]


class ClaimRefusedError(ClaimError):
    """This claim, as it is allocated, cannot be served by this node."""


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """One allocation result of our driver."""

    request: str  # "main", or "main/sub" for a prioritized list
    pool: str
    device: str
    share_id: str | None
    amount: int | None  # None: the device is not shared, the claim has all of it
    parameters: ClaimParameters
    roots: frozenset[str] = frozenset()  # PCIe roots that its CPUs should be close to; no part of the allocation


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """All that a claim asks of this node."""

    ref: ClaimRef
    asks: tuple[DeviceAsk, ...]
    consumers: frozenset[str]  # UIDs of the pods that the claim is reserved for
    digest: str  # of the allocation: another digest under the same UID is another allocation

    def beside(self, roots: Mapping[str, frozenset[str]]) -> "ClaimRequest":
        """The same, with the PCIe roots that its requests should be close to."""
        asks = tuple(replace(ask, roots=roots.get(ask.request, frozenset())) for ask in self.asks)
        return replace(self, asks=asks)


def read_request(ref: ClaimRef, claim: Json, node_name: str) -> ClaimRequest:
    """Reads a ResourceClaim object; other drivers' results are not ours to judge."""
    uid = claim.get("metadata", {}).get("uid")
    if uid != ref.uid:
        raise ClaimRefusedError(
            f"claim {ref} was deleted and made again (UID {uid}, the kubelet asks for {ref.uid}): delete the pod"
        )
    status = claim.get("status") or {}
    allocation = status.get("allocation")
    if not allocation:
        raise ClaimRefusedError(f"claim {ref} is not allocated (any more): the scheduler must place the pod again")
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
        raise ClaimRefusedError(f'claim {ref} holds device {device} of node "{pool}", this is node "{node_name}"')
    if result.get("adminAccess"):
        raise ClaimRefusedError(
            f"claim {ref}, request {request}: adminAccess has no meaning for CPUs, remove it from the claim"
        )
    parameters = parameters_for(request, configs)
    if parameters.cpuset is not None and sum(_same_request(request, other["request"]) for other in results) > 1:
        raise ClaimRefusedError(
            f'claim {ref}, request {request}: the cpuset "{parameters.cpuset}" cannot stand for several devices: '
            "write one request with its own config for each"
        )
    return DeviceAsk(request, pool, device, result.get("shareID"), _amount(ref, result), parameters)


def _same_request(one: str, other: str) -> bool:
    return one.partition("/")[0] == other.partition("/")[0]


def _amount(ref: ClaimRef, result: Json) -> int | None:
    consumed = result.get("consumedCapacity")
    if consumed is None:
        return None
    quantity = consumed.get(names.CAPACITY_CPU)
    if quantity is None:
        raise ClaimRefusedError(
            f"claim {ref}, request {result['request']}: device {result['device']} was given without an amount of "
            f"{names.CAPACITY_CPU}; the cluster needs the feature gate DRAConsumableCapacity"
        )
    amount = whole_cpus(str(quantity))
    if amount is None:
        raise ClaimRefusedError(
            f"claim {ref}, request {result['request']} asks for {quantity} of {names.CAPACITY_CPU}: exclusive CPUs "
            "come in whole positive numbers"
        )
    return amount


def _digest(asks: Iterable[DeviceAsk]) -> str:
    """Of what was asked alone: fields that a newer API server adds do not make it another allocation."""
    said = [[ask.request, ask.pool, ask.device, ask.share_id, ask.amount, ask.parameters.document()] for ask in asks]
    return hashlib.sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()

"""Reads what a claim asks of the driver dra.cpu.

Nothing is rounded or guessed here: the scheduler has rounded, and an amount that is not a whole number of CPUs means
that the claim was not allocated for the devices that this node publishes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.opaque import concerns
from dracpu_agent.claims.parameters import ClaimParameters, parameters_for
from dracpu_agent.claims.request import Ask, ClaimAllocation, ClaimRefusedError, ClaimRequest, Json, read_request
from dracpu_api import names
from dracpu_api.quantity import whole_number, whole_number_or_zero


@dataclass(frozen=True, slots=True)
class CpuAsk(Ask):
    """One allocation result of dra.cpu."""

    amount: int | None  # None: the device is not shared; the claim gets all of it
    parameters: ClaimParameters
    memory: tuple[tuple[str, int], ...] = ()  # kinds and bytes, where the device offers memory beside its CPUs
    roots: frozenset[str] = frozenset()  # PCIe roots that its CPUs should be close to; not part of the allocation

    def terms(self) -> list[Any]:
        """The other values that the allocation depends on, for its digest."""
        memory = [list(map(list, self.memory))] if self.memory else []
        return [self.amount, self.parameters.as_json(), *memory]


CpuRequest = ClaimRequest[CpuAsk]


def read_cpu_request(ref: ClaimRef, claim: Json, node_name: str) -> CpuRequest:
    """Reads a ResourceClaim object, or refuses it."""
    request = read_request(ref, claim, node_name, names.DRIVER, _ask)
    allocated = (claim.get("status") or {}).get("allocation") or {}
    for config in (allocated.get("devices") or {}).get("config") or ():
        _check_other_parameters(request, config)
    return request


def with_roots(request: CpuRequest, roots: Mapping[str, frozenset[str]]) -> CpuRequest:
    """The request with the PCIe roots, by request name, that its CPUs should be close to."""
    asks = tuple(replace(ask, roots=roots.get(ask.request, frozenset())) for ask in request.asks)
    return replace(request, asks=asks)


def _ask(allocation: ClaimAllocation, result: Json) -> CpuAsk:
    parameters = parameters_for(result["request"], allocation.configs)
    if parameters.cpuset is not None and allocation.results_of(result) > 1:
        raise allocation.refused(
            result,
            f'the cpuset "{parameters.cpuset}" cannot apply to several devices: use a separate request with its own '
            "config for each device",
        )
    amount = _amount(allocation, result)
    memory = tuple(_memory(allocation, result))
    return CpuAsk(
        result["request"], result["pool"], result["device"], result.get("shareID"), amount, parameters, memory
    )


def _amount(allocation: ClaimAllocation, result: Json) -> int | None:
    if result.get("consumedCapacity") is None:
        return None
    quantity = allocation.amount(result, names.CAPACITY_CPU)
    amount = whole_number(quantity)
    if amount is None:
        raise allocation.refused(
            result, f"it asks for {quantity} of {names.CAPACITY_CPU}: request a whole number of at least 1"
        )
    return amount


def _check_other_parameters(request: CpuRequest, config: Json) -> None:
    """Refuses parameters of memory for a request whose memory has none: they would have no effect."""
    if (config.get("opaque") or {}).get("driver") != names.DRIVER_MEMORY:
        return
    for ask in request.asks:
        if ask.memory and concerns(config.get("requests") or (), ask.request):
            raise ClaimRefusedError(
                f"claim {request.ref}, request {ask.request}: parameters of the driver {names.DRIVER_MEMORY} have no "
                f"effect on memory of device {ask.device}: remove them from the claim or its DeviceClass"
            )


def _memory(allocation: ClaimAllocation, result: Json) -> Iterator[tuple[str, int]]:
    """The kinds of memory of which the result consumes something; 0 means CPUs alone."""
    consumed = result.get("consumedCapacity") or {}
    for kind, capacity in sorted(names.CAPACITIES_BESIDE_CPUS.items()):
        quantity = str(consumed.get(capacity, "0"))
        size = whole_number_or_zero(quantity)
        if size is None:
            raise allocation.refused(result, f"it asks for {quantity} of {capacity}: request a whole number of bytes")
        if size:
            yield kind, size

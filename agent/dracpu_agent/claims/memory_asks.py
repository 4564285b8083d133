"""Reads what a claim asks of the driver dra.memory. Amounts are exact bytes: the scheduler has rounded."""

from dataclasses import dataclass
from typing import Any

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.request import Ask, ClaimAllocation, ClaimRequest, Json, read_request
from dracpu_agent.memory.kinds import Place, place_of
from dracpu_api import names
from dracpu_api.quantity import whole_number


@dataclass(frozen=True, slots=True)
class MemoryAsk(Ask):
    """One allocation result of dra.memory."""

    place: Place
    size: int

    def terms(self) -> list[Any]:
        """The other values that the allocation depends on, for its digest."""
        return [self.size]


MemoryRequest = ClaimRequest[MemoryAsk]


def read_memory_request(ref: ClaimRef, claim: Json, node_name: str) -> MemoryRequest:
    """Reads a ResourceClaim object, or refuses it."""
    return read_request(ref, claim, node_name, names.MEMORY.driver, _ask)


def _ask(allocation: ClaimAllocation, result: Json) -> MemoryAsk:
    device = result["device"]
    place = place_of(device)
    if place is None:
        raise allocation.refused(result, f"this node has no device {device}")
    quantity = allocation.amount(result, names.CAPACITY_SIZE)
    size = whole_number(quantity)
    if size is None:
        raise allocation.refused(result, f"it asks for a size of {quantity}: request a whole number of bytes")
    if place.kind.is_huge and size % place.kind.page:
        raise allocation.refused(result, f"it asks for {quantity} of {place}, which is not a whole number of pages")
    return MemoryAsk(result["request"], result["pool"], device, result.get("shareID"), place, size)

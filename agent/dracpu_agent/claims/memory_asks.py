"""Reads what a claim asks of the driver dra.memory. Amounts are exact bytes: the scheduler has rounded."""

from dataclasses import dataclass
from typing import Any

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.memory_parameters import memory_parameters_for
from dracpu_agent.claims.request import Ask, ClaimAllocation, ClaimRequest, Json, read_request
from dracpu_agent.memory.binding import Binding
from dracpu_agent.memory.kinds import Place, place_of
from dracpu_api import names
from dracpu_api.quantity import whole_number


@dataclass(frozen=True, slots=True)
class MemoryAsk(Ask):
    """One allocation result of dra.memory."""

    place: Place
    size: int
    binding: Binding = Binding.STRICT
    mount: str = ""  # where files of the pages appear in the container

    def terms(self) -> list[Any]:
        """The other values that the allocation depends on, for its digest. Parameters enter it only where they differ
        from their defaults, so that claims of an agent that knew none keep their digests."""
        strict = self.binding is Binding.STRICT
        return [self.size] if strict and not self.mount else [self.size, self.binding, self.mount]


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
    parameters = memory_parameters_for(result["request"], allocation.configs)
    mount = parameters.mount or ""
    if mount:
        _check_mount(allocation, result, place, mount)
    binding = parameters.binding or Binding.STRICT
    return MemoryAsk(result["request"], result["pool"], device, result.get("shareID"), place, size, binding, mount)


def _check_mount(allocation: ClaimAllocation, result: Json, place: Place, mount: str) -> None:
    if not place.kind.is_huge:
        raise allocation.refused(
            result,
            f"ordinary memory cannot be mounted at {mount}: name the requests of hugepages in the requests of the "
            "config that has the parameter mount",
        )
    own = result["request"].partition("/")[0]
    others = [other for other in allocation.results if other["request"].partition("/")[0] == own]
    if any((found := place_of(other["device"])) and found.kind != place.kind for other in others):
        raise allocation.refused(
            result,
            f"it has hugepages of several sizes, and one mount at {mount} has pages of one size: use a request for "
            "each size, with a path of its own",
        )

"""Decides whether the memory that a claim asks for is there, for claims of both drivers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from dracpu_agent.claims.cpu_asks import CpuAsk, CpuRequest
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.memory_asks import MemoryAsk
from dracpu_agent.claims.memory_sizes import MemorySizes
from dracpu_agent.claims.request import Ask, ClaimRefusedError
from dracpu_agent.errors import NotReadyError
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.room import SMALLEST
from dracpu_api.device_names import parse_device
from dracpu_api.quantity import format_binary
from dracpu_api.settings import GroupBy


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part of what a claim asks for."""

    request: str
    place: Place
    size: int


@dataclass(frozen=True, slots=True)
class MemoryGranting:
    """The memory of the node at the moment of a grant."""

    there: Mapping[Place, int]
    left: Mapping[Place, int]  # what is neither promised to other claims nor kept for them
    really_left: Mapping[Place, int]  # likewise, of the hugepages that pods without claims do not take, where known
    is_hidden: Callable[[Place], bool]  # memory that is here, and that cannot be offered yet

    def check(self, ref: ClaimRef, consumers: Collection[str], parts: Sequence[Wanted]) -> None:
        """Raises a ClaimError when a part of the memory is not there."""
        if len(consumers) > 1 and parts:
            raise ClaimRefusedError(
                f"claim {ref}: memory serves one pod, and this claim is reserved for {len(consumers)}: "
                "use a ResourceClaimTemplate, which makes a claim for each pod"
            )
        left, really_left = dict(self.left), dict(self.really_left)
        for part in parts:
            if part.place not in self.there and self.is_hidden(part.place):
                raise NotReadyError(
                    f"claim {ref}, request {part.request}: the agent has not read yet how much memory the "
                    "kubelet reserves for the system: the kubelet retries"
                )
            if part.place not in self.there:
                raise ClaimRefusedError(
                    f"claim {ref}, request {part.request}: this node does not offer {part.place}: "
                    "delete the pod, so that its replacement is scheduled anew"
                )
            free = left[part.place]
            if part.size > free:
                raise ClaimRefusedError(
                    f"claim {ref}, request {part.request}: of {part.place} it asks for {format_binary(part.size)}"
                    f", and {format_binary(max(0, free))} are not promised to others: the pod can start when claims end"
                )
            if part.size > really_left.get(part.place, free):
                raise NotReadyError(
                    f"claim {ref}, request {part.request}: of {part.place} it asks for {format_binary(part.size)}"
                    f", and {format_binary(max(0, really_left[part.place]))} are left: pods that request hugepages in "
                    "their spec, or programs of the node, use the others or may still take them; end these pods, or "
                    "keep pages for them with memory.reserved"
                )
            left[part.place] = free - part.size
            really_left[part.place] = really_left.get(part.place, free) - part.size


def memory_beside_cpus(request: CpuRequest, ask: CpuAsk) -> MemorySizes:
    """The memory that is asked for beside the CPUs of a device; raises ClaimRefusedError."""
    if not ask.memory:
        return MemorySizes()
    device = parse_device(ask.device)
    if device is None or device.group_by is not GroupBy.NUMA_NODE:
        raise _refused(request, ask, f"device {ask.device} offers no memory")
    sizes = {Place(device.number, kind): size for name, size in ask.memory if (kind := Kind.named(name)) is not None}
    for place, size in sizes.items():
        if place.kind.is_huge and size % place.kind.page:
            raise _refused(
                request, ask, f"it asks for {format_binary(size)} of {place}, which is not a whole number of pages"
            )
        if not place.kind.is_huge and size < SMALLEST:
            raise _refused(
                request,
                ask,
                f"it asks for {format_binary(size)} of {place}, with which no container can start: request at least "
                f"{format_binary(SMALLEST)}",
            )
    return MemorySizes.of(sizes)


def asks_for_pages(ask: Ask) -> bool:
    """Whether a part of a claim of either driver asks for hugepages."""
    match ask:
        case MemoryAsk():
            return ask.place.kind.is_huge
        case CpuAsk():
            return any(name != MEMORY.name for name, _ in ask.memory)
        case _:
            return False


def _refused(request: CpuRequest, ask: CpuAsk, reason: str) -> ClaimRefusedError:
    return ClaimRefusedError(f"claim {request.ref}, request {ask.request}: {reason}")

"""The driver dra.memory: how much memory of each kind is offered on each NUMA node, and what a claim gets."""

from collections.abc import Mapping

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.memory_asks import MemoryAsk, MemoryRequest, read_memory_request
from dracpu_agent.claims.memory_claim import MemoryClaim, MemoryGrant, MemoryLedger
from dracpu_agent.claims.request import ClaimRefusedError, Json
from dracpu_agent.devices.device import Device, Taint
from dracpu_agent.devices.memory import publish_memory
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.errors import NotReadyError
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.kinds import Place
from dracpu_agent.memory.room import Wishes, capacity, missing, room
from dracpu_agent.topology.topology import Topology
from dracpu_api import names
from dracpu_api.quantity import format_binary


class MemoryDriver(Driver[MemoryAsk, MemoryClaim]):
    """The memory of a node. It offers nothing until it has wishes."""

    names = names.MEMORY
    claim_type = MemoryClaim

    def __init__(self, node_name: str, inventory: Inventory, topology: Topology) -> None:
        self._promises = MemoryLedger()
        super().__init__(self._promises)
        self.wishes: Wishes | None = None
        self.system = 0  # bytes that the kubelet reserves of the whole machine
        self.inventory = inventory
        self.topology = topology
        self._node_name = node_name

    def room(self) -> Mapping[Place, int]:
        """Bytes that claims can have, by place; nothing without wishes."""
        with_cpus = {cpu.numa for cpu in self.topology.known.values()}
        return {} if self.wishes is None else room(self.inventory, self.wishes, self.system, with_cpus)

    def promised(self) -> Mapping[Place, int]:
        """Bytes that claims hold, by place."""
        return self._promises.promised()

    def devices(self, taints: tuple[Taint, ...]) -> tuple[Device, ...]:
        """A device for each place where there is, or was promised, something."""
        if self.wishes is None:
            return ()
        there, promised, counted = self.room(), self.promised(), self._promises.counted()
        capacities = {
            place: capacity(there.get(place, 0), counted.get(place, 0), promised.get(place, 0) - counted.get(place, 0))
            for place in {*there, *promised}
        }
        return publish_memory(self.inventory, self.topology, capacities, taints)

    def read(self, ref: ClaimRef, claim: Json) -> MemoryRequest:
        """Reads what a ResourceClaim asks of this driver; raises ClaimRefusedError."""
        return read_memory_request(ref, claim, self._node_name)

    def choose(self, request: MemoryRequest) -> tuple[MemoryGrant, ...]:
        """The memory for a claim; raises a ClaimError when a part of it is not there."""
        if self.wishes is None:
            raise NotReadyError(f"node {self._node_name} does not offer memory: no CpuDriverConfig enables it")
        there, promised = self.room(), self.promised()
        left = {place: size - promised.get(place, 0) for place, size in there.items()}
        grants = []
        for ask in request.asks:
            if ask.place not in there:
                raise ClaimRefusedError(
                    f"claim {request.ref}, request {ask.request}: this node does not offer {ask.place}: "
                    "delete the pod, so that its replacement is scheduled anew"
                )
            free = left[ask.place]
            if ask.size > free:
                raise ClaimRefusedError(
                    f"claim {request.ref}, request {ask.request}: of {ask.place} it asks for {format_binary(ask.size)}"
                    f", and {format_binary(max(0, free))} are not promised to others: the pod can start when claims end"
                )
            left[ask.place] = free - ask.size
            grants.append(
                MemoryGrant(
                    request=ask.request,
                    pool=ask.pool,
                    device=ask.device,
                    share_id=ask.share_id,
                    place=ask.place,
                    size=ask.size,
                )
            )
        return tuple(grants)

    def problems(self) -> Mapping[str, str]:
        """The devices of which more is promised than there is."""
        lost = missing(self.room(), self.promised()) if self.wishes is not None else {}
        return {
            place.device: f"{format_binary(size)} less of {place} than claims were promised: pages were taken away, or "
            "the settings reserve more"
            for place, size in lost.items()
        }

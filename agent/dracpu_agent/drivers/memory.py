"""The driver dra.memory: how much memory of each kind is offered on each NUMA node, what a claim gets, and what the
containers of claims may use.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.memory_asks import MemoryAsk, MemoryRequest, read_memory_request
from dracpu_agent.claims.memory_claim import MemoryClaim, MemoryGrant, MemoryLedger, sizes_of
from dracpu_agent.claims.request import ClaimRefusedError, Json
from dracpu_agent.devices.device import Device, Taint
from dracpu_agent.devices.memory import publish_memory
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.drivers.memory_containers import MemoryContainers
from dracpu_agent.drivers.memory_creation import MemoryCreation
from dracpu_agent.errors import NotReadyError, SettingsRefusedError
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.limits import pages_in
from dracpu_agent.memory.own_pages import OwnPages, own_pages
from dracpu_agent.memory.pages_left import PagesLook, pages_for_claims, shared_pages
from dracpu_agent.memory.pods import PodPages
from dracpu_agent.memory.provision import Promises, wanted_pages
from dracpu_agent.memory.room import Wishes, capacity, missing, room
from dracpu_agent.memory.status import memory_status, use_of
from dracpu_agent.memory.use import ClaimsUse
from dracpu_agent.placement.container import AtCreation, Container
from dracpu_agent.topology.topology import Topology
from dracpu_api import names
from dracpu_api.quantity import format_binary
from dracpu_api.settings import CpuNodeSpec, MemorySettings

_EVERYTHING: Final = Wishes(cpuless=True)  # what claims of devices that are not offered any more can still get


class MemoryDriver(Driver[MemoryAsk, MemoryClaim]):
    """The memory of a node. It offers nothing until the settings enable it."""

    names = names.MEMORY
    claim_type = MemoryClaim

    def __init__(self, node_name: str, inventory: Inventory, topology: Topology) -> None:
        self._promises = MemoryLedger()
        super().__init__(self._promises)
        self.inventory = inventory
        # bytes that the kubelet keeps of the whole machine; None while it is not known: then ordinary memory is offered
        # only where the settings reserve some
        self.system: int | None = None
        # False: claims do not get what cannot be limited, so it is not offered beyond what they have already
        self.memory_can_be_limited = True
        self.pages_can_be_limited = True
        self.pods = PodPages()
        self.use = ClaimsUse()
        self.pages: PagesLook | None = None  # before the latest claim was granted; None: nothing reads them
        self.allocatable_pages: Mapping[int, int] = {}  # size of a page -> bytes that the kubelet offers to pods
        self.own_pages = OwnPages()
        self._topology = topology
        self._node_name = node_name
        self._spec: CpuNodeSpec | None = None
        self._wishes: Wishes | None = None
        self._former: Wishes | None = None  # whose devices are published while the node settles
        self._containers = MemoryContainers(self.pods, lambda: self.inventory)
        self._creation = MemoryCreation(lambda: self.inventory)

    # ---- settings and machine

    def check(self, spec: CpuNodeSpec) -> None:
        """Raises SettingsRefusedError when these settings cannot be applied here."""
        memory = spec.settings.memory if spec.settings.memory.enabled else MemorySettings()
        named = [("reserved", entry.numa_node) for entry in memory.reserved]
        named += [("provision", entry.numa_node) for entry in memory.provision]
        for field, numa in named:
            if numa not in self.inventory.by_numa:
                raise SettingsRefusedError(
                    f"memory.{field} names NUMA node {numa}, which has no memory here: "
                    f"those with memory are {', '.join(str(numa) for numa in self.inventory.by_numa)}"
                )
        for reserved in memory.reserved:
            for name, size in reserved.amounts:
                kind = Kind.named(name)
                if kind is not None and kind.is_huge and size % kind.page:
                    raise SettingsRefusedError(
                        f"memory.reserved of NUMA node {reserved.numa_node}: {format_binary(size)} is not a whole "
                        f"number of pages of {name}"
                    )

    def configure(self, spec: CpuNodeSpec) -> None:
        """Applies settings. Devices that are offered no more stay published, closed to new claims, until the node has
        `settled`."""
        wishes, former = _wishes_of(spec.settings.memory), self._former or self._wishes
        self._former = former if wishes is None and spec.settle_seconds else None
        self._wishes, self._spec = wishes, spec

    def deconfigure(self) -> None:
        """No config selects this node any more: nothing is offered, claims keep what they hold."""
        self._spec = self._wishes = self._former = None

    @property
    def enabled(self) -> bool:
        """Whether the settings offer memory."""
        return self._wishes is not None

    @property
    def offers(self) -> bool:
        """Whether the driver has slices."""
        return self.enabled or self.settling

    @property
    def settling(self) -> bool:
        """True while the devices stay published, closed to new claims, before they are withdrawn."""
        return self._former is not None

    def settled(self) -> bool:
        """The devices have been closed to new claims for long enough; False when the driver was not settling."""
        was_settling, self._former = self.settling, None
        return was_settling

    def draining(self) -> tuple[ClaimRef, ...]:
        """The claims, when no device of memory is offered any more."""
        drains = self._spec is not None and self._wishes is None and not self.settling
        return tuple(claim.ref for claim in self.ledger.claims.values()) if drains else ()

    def follow_topology(self, topology: Topology) -> None:
        """The CPUs of the machine have changed."""
        self._topology = topology

    def update(self) -> None:
        """Follows a change of what claims hold."""
        claims = self.ledger.claims.values()
        self._containers.sizes_of_devices = dict(device for claim in claims for device in claim.by_cdi_device())
        self._creation.follow(claims)
        claimed: dict[str, Counter[int]] = {}
        for claim in claims:
            if pages := pages_in(sizes_of(claim.grants)):
                for pod in claim.consumers:
                    claimed.setdefault(pod, Counter()).update(pages)
        self.pods.set_claims(claimed, [claim.consumers for claim in claims if claim.frozen is not None])

    def state(self) -> Any:
        """What the kubelet keeps, what the specs of pods ask for, and which pages the agent has made: none of them can
        always be read again. An older agent drops the pages from the checkpoint; then they count as made by others."""
        own = self.own_pages.state()
        return {"system": self.system, "pods": self.pods.state(), **({"ownPages": own} if own else {})}

    def restore(self, state: Any) -> None:
        """Takes over the `state` of an earlier agent."""
        if isinstance(state, dict):
            system = state.get("system")
            self.system = system if isinstance(system, int) else None
            self.pods.restore(state.get("pods"))
            self.own_pages = own_pages(state.get("ownPages"))

    # ---- devices and claims

    def room(self) -> Mapping[Place, int]:
        """Bytes that claims can have, by place."""
        return self._room(self.own_pages.cautious(self.inventory), self._present)

    def promised(self) -> Mapping[Place, int]:
        """Bytes that claims hold, by place."""
        return self._promises.promised()

    def wanted_pages(self) -> Mapping[Place, int]:
        """How many hugepages the settings want, by place."""
        return {} if self._spec is None else wanted_pages(self._spec.settings.memory)

    def pages_made(self) -> Mapping[Place, int]:
        """How many hugepages the agent has made, by place."""
        return {place: self.own_pages.of(place) for place in self.own_pages.places}

    def promises(self) -> Promises:
        """What has to be kept when pages are made or given back."""
        wishes = self._present
        return Promises(lambda machine: self._room(machine, wishes), self.promised(), reserved=wishes.reserved)

    def devices(self, taints: tuple[Taint, ...]) -> tuple[Device, ...]:
        """A device for each place where there is, or was promised, something."""
        if not self.offers:
            return ()
        there = {place: size for place, size in self.room().items() if self._can_be_limited(place)}
        promised, counted = self.promised(), self._promises.counted()
        capacities = {
            place: capacity(there.get(place, 0), counted.get(place, 0), promised.get(place, 0) - counted.get(place, 0))
            for place in {*there, *promised}
        }
        taints = (*taints, Taint(names.TAINT_SETTLING)) if self.settling else taints
        return publish_memory(self.inventory, self._topology, capacities, taints)

    def read(self, ref: ClaimRef, claim: Json) -> MemoryRequest:
        """Reads what a ResourceClaim asks of this driver; raises ClaimRefusedError."""
        return read_memory_request(ref, claim, self._node_name)

    def choose(self, request: MemoryRequest) -> tuple[MemoryGrant, ...]:
        """The memory for a claim; raises a ClaimError when a part of it is not there."""
        if self._spec is None:
            raise NotReadyError(f"node {self._node_name} does not offer memory: no CpuDriverConfig selects it")
        if len(request.consumers) > 1:
            raise ClaimRefusedError(
                f"claim {request.ref}: memory serves one pod, and this claim is reserved for {len(request.consumers)}: "
                "use a ResourceClaimTemplate, which makes a claim for each pod"
            )
        there, promised = self.room(), self.promised()
        left = {place: size - promised.get(place, 0) for place, size in there.items()}
        really_left = {place: size - promised.get(place, 0) for place, size in self._pages_for_claims().items()}
        grants = []
        for ask in request.asks:
            if ask.place not in there and self._is_hidden(ask.place):
                raise NotReadyError(
                    f"claim {request.ref}, request {ask.request}: the agent has not read yet how much memory the "
                    "kubelet reserves for the system: the kubelet retries"
                )
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
            if ask.size > really_left.get(ask.place, free):
                raise NotReadyError(
                    f"claim {request.ref}, request {ask.request}: of {ask.place} it asks for {format_binary(ask.size)}"
                    f", and {format_binary(max(0, really_left[ask.place]))} are left: pods that request hugepages in "
                    "their spec, or programs of the node, use the others or may still take them; end these pods, or "
                    "keep pages for them with memory.reserved"
                )
            left[ask.place] = free - ask.size
            really_left[ask.place] = really_left.get(ask.place, free) - ask.size
            grants.append(
                MemoryGrant(
                    request=ask.request,
                    pool=ask.pool,
                    device=ask.device,
                    share_id=ask.share_id,
                    place=ask.place,
                    size=ask.size,
                    binding=ask.binding,
                    mount=ask.mount,
                )
            )
        return tuple(grants)

    # ---- containers

    def admit(
        self, container: Container, devices: frozenset[str], others: Sequence[tuple[Container, frozenset[str]]]
    ) -> None:
        """Refuses a container that would share what cannot be shared."""
        self._containers.admit(container, devices, others)

    def limits(self, container: Container, devices: frozenset[str]) -> Mapping[str, str]:
        """What claims set in a container's cgroup."""
        return self._creation.unbound(self._containers.limits(container, devices), devices)

    def at_creation(self, container: Container, devices: frozenset[str]) -> AtCreation:
        """The NUMA nodes that a container prefers where it is not bound, and the hugepages that it mounts; raises
        PlacementError."""
        return self._creation.of(container, devices)

    # ---- how it stands

    def problems(self) -> Mapping[str, str]:
        """The devices of which more is promised than there is."""
        return {
            place.device: f"{format_binary(size)} less of {place} than claims were promised: pages were taken away, or "
            "the settings reserve more"
            for place, size in self.missing().items()
        }

    def status(self) -> Mapping[str, Any]:
        """What there is of each kind on each NUMA node, and what of it is promised; nothing where nothing ever was."""
        there = self.room() if self.offers else {}
        found = memory_status(self.inventory, there, self.promised(), self.use.shown, self.wanted_pages())
        return {"memory": found} if found else {}

    def used(self, claim: MemoryClaim) -> Sequence[Mapping[str, Any]]:
        """What containers use of a claim, by kind and NUMA node."""
        used = self.use.by_claim.get(claim.ref.uid)
        return () if used is None else use_of(sizes_of(claim.grants), used)

    def missing(self) -> Mapping[Place, int]:
        """By how much promises exceed what is there, by place."""
        return missing(self.room(), self.promised()) if self._spec is not None else {}

    def shared_pages(self) -> Mapping[Kind, int]:
        """Bytes of the offered hugepages that the kubelet may also give pods that request them in their spec."""
        if self._wishes is None:
            return {}
        return shared_pages(self.allocatable_pages, self._wishes.reserved, self.room())

    def _pages_for_claims(self) -> Mapping[Place, int]:
        """Bytes of hugepages that claims can really have, as they were read last."""
        reserved = (self._former or self._wishes or _EVERYTHING).reserved
        return {} if self.pages is None else pages_for_claims(self.pages, reserved, self.promised())

    def _can_be_limited(self, place: Place) -> bool:
        return self.pages_can_be_limited if place.kind.is_huge else self.memory_can_be_limited

    @property
    def _present(self) -> Wishes:
        return self._former or self._wishes or _EVERYTHING

    def _room(self, inventory: Inventory, wishes: Wishes) -> Mapping[Place, int]:
        found = self._room_without_system(inventory, wishes)
        return {place: size for place, size in found.items() if not self._needs_system(place, wishes)}

    def _room_without_system(self, inventory: Inventory, wishes: Wishes) -> Mapping[Place, int]:
        """What there is, as if the kubelet kept nothing while it is not known what it keeps."""
        with_cpus = {cpu.numa for cpu in self._topology.known.values()}
        return room(inventory, wishes, self.system or 0, with_cpus)

    def _needs_system(self, place: Place, wishes: Wishes) -> bool:
        return self.system is None and not place.kind.is_huge and place not in wishes.reserved

    def _is_hidden(self, place: Place) -> bool:
        """True for memory that is here, and that cannot be offered before it is known what the kubelet keeps."""
        wishes = self._present
        return self._needs_system(place, wishes) and place in self._room_without_system(self.inventory, wishes)


def _wishes_of(settings: MemorySettings) -> Wishes | None:
    if not settings.enabled:
        return None
    sizes = None if settings.hugepages is None else frozenset(settings.hugepages)
    reserved = {
        Place(entry.numa_node, kind): size
        for entry in settings.reserved
        for name, size in entry.amounts
        if (kind := Kind.named(name)) is not None
    }
    return Wishes(sizes, reserved, settings.cpuless_nodes)

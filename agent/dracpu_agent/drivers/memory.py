"""The driver dra.memory: how much memory of each kind is offered on each NUMA node, what a claim gets, and what the
containers of claims may use.

Memory is offered by devices of its own, or by the devices of CPUs beside their CPUs. Claims of the latter belong to the
driver dra.cpu, which records their memory together with their CPUs; what is promised is counted here for both.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dracpu_agent.claims.cpu_asks import CpuRequest
from dracpu_agent.claims.cpu_claim import CpuLedger
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.ledger import Ledger
from dracpu_agent.claims.memory_asks import MemoryAsk, MemoryRequest, read_memory_request
from dracpu_agent.claims.memory_claim import MemoryClaim, MemoryGrant
from dracpu_agent.claims.memory_granting import MemoryGranting, Wanted, memory_beside_cpus
from dracpu_agent.claims.memory_sizes import MemorySizes
from dracpu_agent.claims.request import ClaimRefusedError, Json
from dracpu_agent.devices.device import Capacity, Device, Taint
from dracpu_agent.devices.memory import capacities_beside_cpus, publish_memory
from dracpu_agent.drivers.driver import BesideCpus, Driver
from dracpu_agent.drivers.memory_containers import MemoryContainers
from dracpu_agent.drivers.memory_creation import MemoryCreation
from dracpu_agent.drivers.memory_promises import MemoryPromises, memory_of
from dracpu_agent.drivers.memory_publishing import Publishing
from dracpu_agent.errors import NotReadyError, SettingsRefusedError
from dracpu_agent.memory.inventory import SURPLUS_LOOKS, Inventory, SteadySurplus
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.own_pages import OwnPages, own_pages
from dracpu_agent.memory.pages_left import PagesLook, pages_for_claims, shared_pages
from dracpu_agent.memory.pods import PodPages
from dracpu_agent.memory.promises import Promise, kept, left_for, offered, total
from dracpu_agent.memory.provision import Promises, wanted_pages
from dracpu_agent.memory.room import missing, room
from dracpu_agent.memory.status import memory_status, use_of
from dracpu_agent.memory.use import ClaimsUse
from dracpu_agent.placement.container import AtCreation, Container
from dracpu_agent.placement.proof import Use
from dracpu_agent.topology.topology import Topology
from dracpu_api import names
from dracpu_api.device_names import group_device
from dracpu_api.quantity import format_binary
from dracpu_api.settings import CpuNodeSpec, GroupBy, MemorySettings, Publish


class MemoryDriver(Driver[MemoryAsk, MemoryClaim]):
    """The memory of a node. It offers nothing until the settings enable it."""

    names = names.MEMORY
    claim_type = MemoryClaim

    def __init__(self, node_name: str, inventory: Inventory, topology: Topology) -> None:
        super().__init__(Ledger())
        self.inventory = inventory
        self._surplus = SteadySurplus(SURPLUS_LOOKS, inventory)
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
        # False before settings were applied, or it was read that there are none: until then, pages stay as they are
        self.settings_known = False
        self._topology = topology
        self._node_name = node_name
        self._publishing = Publishing()
        self._promises = MemoryPromises(self.ledger.claims)
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
        """Applies settings. Devices that go away, or lose their memory, stay published, closed to new claims, until the
        node has `settled`."""
        self.settings_known = True
        self._publishing.configure(spec)

    def deconfigure(self) -> None:
        """No config selects this node any more: nothing is offered, claims keep what they hold."""
        self.settings_known = True
        self._publishing.deconfigure()

    @property
    def enabled(self) -> bool:
        """Whether the settings offer memory."""
        return self._publishing.enabled

    @property
    def offers(self) -> bool:
        """Whether the driver has slices: devices of its own."""
        return self._publishing.through is Publish.DEVICES

    @property
    def settling(self) -> bool:
        """True while devices stay published, closed to new claims, before others offer the memory or none does."""
        return self._publishing.settling

    def settled(self) -> bool:
        """The devices have been closed to new claims for long enough; False when the driver was not settling."""
        return self._publishing.settled()

    def draining(self) -> tuple[ClaimRef, ...]:
        """The claims whose memory the published devices do not show."""
        spec = self._publishing.spec
        if spec is None or self.settling:
            return ()
        return tuple(self._promises.draining(spec, self._publishing.through))

    def follow_machine(self, found: Inventory) -> bool:
        """The memory of the machine was read; returns whether it is another than before."""
        former, self.inventory = self.inventory, self._surplus.follow(found)
        return self.inventory != former

    def follow_topology(self, topology: Topology) -> None:
        """The CPUs of the machine have changed."""
        self._topology = topology

    def update(self) -> None:
        """Follows a change of what claims hold."""
        self._containers.sizes_of_devices = self._promises.by_cdi_device()
        self._creation.follow(self._promises.parts_by_cdi_device())
        self.pods.set_claims(self._promises.pages_by_pod(), self._promises.pods_of_unreadable())

    def state(self) -> Any:
        """The parts that cannot always be read again: how much the kubelet keeps, how many pages the specs of pods ask
        for, which pages the agent has made, and the former settings while the node settles. An older agent drops the
        pages from the checkpoint; then they count as made by others."""
        own, former = self.own_pages.state(), self._publishing.state()
        return {
            "system": self.system,
            "pods": self.pods.state(),
            **({"ownPages": own} if own else {}),
            **({"former": former} if former is not None else {}),
        }

    def restore(self, state: Any) -> None:
        """Takes over the `state` of an earlier agent."""
        if isinstance(state, dict):
            system = state.get("system")
            self.system = system if isinstance(system, int) else None
            self.pods.restore(state.get("pods"))
            self.own_pages = own_pages(state.get("ownPages"))
            self._publishing.restore(state.get("former"))

    # ---- devices and claims

    def room(self) -> Mapping[Place, int]:
        """Bytes that claims can have, by place."""
        return self._room(self.own_pages.cautious(self.inventory))

    def promised(self) -> Mapping[Place, int]:
        """Bytes that claims of memory and of CPUs hold, by place."""
        return total(self._promises.held())

    def claims(self) -> Mapping[str, HeldClaim[Any]]:
        """The claims of memory and of CPUs that have memory, by UID."""
        return self._promises.claims()

    def wanted_pages(self) -> Mapping[Place, int]:
        """How many hugepages the settings name, by place. Without `settings_known`, an empty answer means nothing."""
        spec = self._publishing.spec
        return {} if spec is None else wanted_pages(spec.settings.memory)

    def pages_made(self) -> Mapping[Place, int]:
        """How many hugepages the agent has made, by place."""
        return {place: self.own_pages.of(place) for place in self.own_pages.places}

    def promises(self) -> Promises:
        """The promises that have to be kept when pages are made or given back."""
        # a change that goes on leaves the memory that claims need which have become known since it began
        there = self._room(self.own_pages.aiming({}).cautious(self.inventory))
        held = self._promises.held()
        promised = total([*held, *self._kept(there, held)])
        reserved = self._publishing.offer_settings.reserved
        return Promises(self._room, promised, reserved=reserved, system=self.system or 0)

    def devices(self, taints: tuple[Taint, ...]) -> tuple[Device, ...]:
        """A device for each place where there is, or was promised, something."""
        if not self.offers:
            return ()
        taints = (*taints, Taint(names.TAINT_SETTLING)) if self.settling else taints
        return publish_memory(self.inventory, self._topology, self._offered(Publish.DEVICES), taints)

    def read(self, ref: ClaimRef, claim: Json) -> MemoryRequest:
        """Reads what a ResourceClaim asks of this driver; raises ClaimRefusedError."""
        return read_memory_request(ref, claim, self._node_name)

    def choose(self, request: MemoryRequest) -> tuple[MemoryGrant, ...]:
        """The memory for a claim; raises a ClaimError when a part of it is not there."""
        parts = [Wanted(ask.request, ask.place, ask.size) for ask in request.asks]
        self._check(request.ref, request.consumers, parts, Publish.DEVICES)
        return tuple(
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
            for ask in request.asks
        )

    # ---- memory beside CPUs

    def beside_cpus(self, claims: CpuLedger) -> BesideCpus:
        """Connects the driver with the one of CPUs, whose claims may have memory beside their CPUs."""
        self._promises.of_cpus = claims
        return self

    def concerns(self, use: Use) -> bool:
        """Whether a container's use of a claim gives it memory: it may be a claim of CPUs."""
        return super().concerns(use) or use.cdi_device in self._containers.sizes_of_devices

    def capacities_beside_cpus(self) -> Mapping[str, tuple[Capacity, ...]]:
        """The memory that devices of CPUs offer, by their names."""
        if self._publishing.through is not Publish.WITH_CPUS:
            return {}
        return capacities_beside_cpus(self._offered(Publish.WITH_CPUS), self.inventory.base_page)

    @property
    def closes_cpus(self) -> bool:
        """True while devices of CPUs stay published, closed to new claims, before they lose their memory."""
        return self.settling and self._publishing.through is Publish.WITH_CPUS

    def memory_for(self, request: CpuRequest) -> Sequence[MemorySizes]:
        """The memory for each ask of a claim of CPUs; raises a ClaimError when a part of it is not there."""
        found = [memory_beside_cpus(request, ask) for ask in request.asks]
        parts = [
            Wanted(ask.request, place, size)
            for ask, sizes in zip(request.asks, found, strict=True)
            for place, size in sizes.items
        ]
        if parts:
            self._check(request.ref, request.consumers, parts, Publish.WITH_CPUS)
        return found

    def problems_of_cpus(self) -> Mapping[str, str]:
        """The devices of CPUs of whose memory more is promised than there is."""
        held = total(promise for promise in self._promises.held() if promise.through is Publish.WITH_CPUS)
        problems: dict[str, str] = {}
        for place, message in self._lacking(held):
            device = group_device(GroupBy.NUMA_NODE, place.numa)
            problems[device] = f"{problems[device]}; {message}" if device in problems else message
        return problems

    # ---- containers

    def admit(
        self, container: Container, devices: frozenset[str], others: Sequence[tuple[Container, frozenset[str]]]
    ) -> None:
        """Refuses a container that would share what cannot be shared."""
        self._containers.admit(container, devices, others)

    def limits(self, container: Container, devices: frozenset[str]) -> Mapping[str, str]:
        """The limits that claims set in a container's cgroup."""
        return self._creation.unbound(self._containers.limits(container, devices), devices)

    def at_creation(self, container: Container, devices: frozenset[str]) -> AtCreation:
        """The NUMA nodes that a container prefers where it is not bound, and the hugepages that it mounts; raises
        PlacementError."""
        return self._creation.of(container, devices)

    # ---- how it stands

    def problems(self) -> Mapping[str, str]:
        """The devices of which more is promised than there is."""
        held = total(promise for promise in self._promises.held() if promise.through is Publish.DEVICES)
        return {place.device: message for place, message in self._lacking(held)}

    def status(self) -> Mapping[str, Any]:
        """What there is of each kind on each NUMA node, and what of it is promised; nothing where nothing ever was."""
        there = self.room() if self._publishing.through is not None else {}
        found = memory_status(self.inventory, there, self.promised(), self.use.shown, self.wanted_pages())
        return {"memory": found} if found else {}

    def used(self, claim: HeldClaim[Any]) -> Sequence[Mapping[str, Any]]:
        """How much of a claim its containers use, by kind and NUMA node."""
        used = self.use.by_claim.get(claim.ref.uid)
        return () if used is None else use_of(memory_of(claim), used)

    def available(self) -> tuple[Mapping[Place, int], Mapping[Place, int]]:
        """What claims can hold in all through the published devices, and what is left of that, by place."""
        if self._publishing.through is None:
            return {}, {}
        there = {place: size for place, size in self.room().items() if self._can_be_limited(place)}
        held = self._promises.held()
        taken = total([*held, *self._kept(there, held)])
        return there, {place: max(0, size - taken.get(place, 0)) for place, size in there.items()}

    def missing(self) -> Mapping[Place, int]:
        """By how much promises exceed what is there, by place."""
        return missing(self.room(), self.promised()) if self._publishing.spec is not None else {}

    def shared_pages(self) -> Mapping[Kind, int]:
        """Bytes of the offered hugepages that the kubelet may also give pods that request them in their spec."""
        if not self.enabled:
            return {}
        return shared_pages(self.allocatable_pages, self._publishing.offer_settings.reserved, self.room())

    def _can_be_limited(self, place: Place) -> bool:
        return self.pages_can_be_limited if place.kind.is_huge else self.memory_can_be_limited

    def _lacking(self, held: Mapping[Place, int]) -> Iterator[tuple[Place, str]]:
        for place, size in sorted(self.missing().items()):
            if place in held:
                yield (
                    place,
                    f"{format_binary(size)} less of {place} than claims were promised: pages were taken away, or the "
                    "settings reserve more",
                )

    def _offered(self, published: Publish) -> Mapping[Place, int]:
        there = {place: size for place, size in self.room().items() if self._can_be_limited(place)}
        held = self._promises.held()
        return offered(there, published, held, self._kept(there, held))

    def _kept(self, there: Mapping[Place, int], held: Sequence[Promise]) -> Sequence[Promise]:
        spec = self._publishing.spec
        return kept(there, held, self._promises.waiting(spec)) if spec is not None else ()

    def _check(self, ref: ClaimRef, consumers: frozenset[str], parts: Sequence[Wanted], through: Publish) -> None:
        """Raises a ClaimError when a part of what a claim asks for is not there."""
        if self._publishing.spec is None:
            raise NotReadyError(f"node {self._node_name} does not offer memory: no CpuDriverConfig selects it")
        if self._promises.has_through_other(ref.uid, through):
            raise ClaimRefusedError(
                f"claim {ref} was given devices of memory and memory of devices of CPUs, as the settings changed "
                "meanwhile: delete the pod, so that its replacement is scheduled anew"
            )
        there, held = self.room(), self._promises.held()
        waiting, pages = self._kept(there, held), self._pages_for_claims()
        left = left_for(ref.uid, there, held, waiting)
        pages_left = left_for(ref.uid, pages, held, waiting)
        really_left = {place: pages_left[place] for place in pages}
        MemoryGranting(there, left, really_left, self._is_hidden).check(ref, consumers, parts)

    def _pages_for_claims(self) -> Mapping[Place, int]:
        """Bytes of hugepages that claims can really have, as they were read last."""
        reserved = self._publishing.offer_settings.reserved
        return {} if self.pages is None else pages_for_claims(self.pages, reserved, self.promised())

    def _room(self, inventory: Inventory) -> Mapping[Place, int]:
        found = self._room_without_system(inventory)
        return {place: size for place, size in found.items() if not self._needs_system(place)}

    def _room_without_system(self, inventory: Inventory) -> Mapping[Place, int]:
        """The room for claims, as if the kubelet kept nothing while it is not known how much it keeps."""
        with_cpus = {cpu.numa for cpu in self._topology.known.values()}
        return room(inventory, self._publishing.offer_settings, self.system or 0, with_cpus)

    def _needs_system(self, place: Place) -> bool:
        return self.system is None and not place.kind.is_huge and place not in self._publishing.offer_settings.reserved

    def _is_hidden(self, place: Place) -> bool:
        """True for memory that is here, and that cannot be offered before it is known what the kubelet keeps."""
        return self._needs_system(place) and place in self._room_without_system(self.inventory)

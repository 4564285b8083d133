"""The memory that claims hold, and what is kept for claims that were allocated before the devices changed. They are
claims of memory, and claims of CPUs that have memory beside their CPUs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dracpu_agent.claims.cpu_claim import CpuClaim, CpuLedger
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.memory_claim import MemoryClaim, sizes_of
from dracpu_agent.memory.binding import Part
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.limits import pages_in
from dracpu_agent.memory.promises import Promise
from dracpu_api.device_names import is_published, parse_device, parse_memory_device
from dracpu_api.names import DRIVER, DRIVER_MEMORY
from dracpu_api.settings import CpuNodeSpec, GroupBy, OutstandingDevice, Publish


class MemoryPromises:
    """Reads the claims of both drivers."""

    def __init__(self, claims: Mapping[str, MemoryClaim]) -> None:
        self._claims = claims
        self.of_cpus = CpuLedger()  # connected later

    def held(self) -> Sequence[Promise]:
        """The memory that claims hold."""
        return [
            Promise(claim.ref.uid, through, memory_of(claim), is_counted=not claim.lingering)
            for through, claim in self._claims_with_memory()
        ]

    def waiting(self, spec: CpuNodeSpec) -> Sequence[Promise]:
        """The memory of outstanding claims that are not prepared yet."""
        return [
            Promise(claim.uid, through, sizes)
            for claim in spec.outstanding
            for device in claim.devices
            if (through := _through(device)) is not None
            and claim.uid not in self._prepared(through)
            and (sizes := _sizes(device, through))
        ]

    def draining(self, spec: CpuNodeSpec, published: Publish | None) -> Iterator[ClaimRef]:
        """The claims whose memory the published devices do not show."""
        yield from (claim.ref for through, claim in self._claims_with_memory() if through is not published)
        for claim in spec.outstanding:
            others = (device for device in claim.devices if not is_published(device, spec.settings))
            if any((through := _through(device)) and claim.uid not in self._prepared(through) for device in others):
                yield ClaimRef(claim.namespace, claim.name, claim.uid)

    def has_through_other(self, uid: str, through: Publish) -> bool:
        """Whether a claim holds memory through other devices than these."""
        return any(promise.uid == uid and promise.through is not through for promise in self.held())

    def claims(self) -> Mapping[str, HeldClaim[Any]]:
        """The claims that have memory, by UID: a claim has memory through one kind of device."""
        return {claim.ref.uid: claim for _, claim in self._claims_with_memory()}

    def by_cdi_device(self) -> Mapping[str, Mapping[Place, int]]:
        """Each CDI device that gives a container memory, and the bytes by place."""
        return dict(device for _, claim in self._claims_with_memory() for device in memory_by_cdi_device(claim))

    def parts_by_cdi_device(self) -> Mapping[str, Sequence[Part]]:
        """Each CDI device, and what it gives a container; memory beside CPUs is always strictly bound."""
        own = dict(device for claim in self._claims.values() for device in claim.parts_by_cdi_device())
        beside = (device for claim in self.of_cpus.with_memory() for device in claim.memory_by_cdi_device())
        return {**own, **{name: [Part(place, size) for place, size in sizes.items()] for name, sizes in beside}}

    def pods_of_unreadable(self) -> Sequence[frozenset[str]]:
        """The pods of each claim with memory that cannot be decoded: it may have more than was found of it."""
        return [claim.consumers for _, claim in self._claims_with_memory() if claim.frozen is not None]

    def pages_by_pod(self) -> Mapping[str, Mapping[int, int]]:
        """The bytes of hugepages that the claims of each pod have, by the size of the pages."""
        claimed: dict[str, Counter[int]] = {}
        for _, claim in self._claims_with_memory():
            if pages := pages_in(memory_of(claim)):
                for pod in claim.consumers:
                    claimed.setdefault(pod, Counter()).update(pages)
        return claimed

    def _claims_with_memory(self) -> Iterator[tuple[Publish, HeldClaim[Any]]]:
        yield from ((Publish.DEVICES, claim) for claim in self._claims.values())
        yield from ((Publish.WITH_CPUS, claim) for claim in self.of_cpus.with_memory())

    def _prepared(self, through: Publish) -> Mapping[str, HeldClaim[Any]]:
        return self._claims if through is Publish.DEVICES else self.of_cpus.claims


def memory_of(claim: HeldClaim[Any]) -> Mapping[Place, int]:
    """The memory that a claim holds, by place, whichever driver it is of."""
    match claim:
        case MemoryClaim():
            return sizes_of(claim.grants)
        case CpuClaim(memory=memory) if memory:
            return memory.by_place()
        case _:
            return {}


def memory_by_cdi_device(claim: HeldClaim[Any]) -> Iterator[tuple[str, Mapping[Place, int]]]:
    """Each CDI device of a claim that gives a container memory, and the bytes by place."""
    match claim:
        case MemoryClaim():
            yield from claim.by_cdi_device()
        case CpuClaim():
            yield from claim.memory_by_cdi_device()


def _through(device: OutstandingDevice) -> Publish | None:
    """By which devices memory was published when a claim was given this one; None for a device without memory."""
    if not device.amounts:
        return None
    return {DRIVER_MEMORY: Publish.DEVICES, DRIVER: Publish.WITH_CPUS}.get(device.driver)


def _sizes(device: OutstandingDevice, through: Publish) -> Mapping[Place, int]:
    numa = _numa_node(device.name, through)
    kinds = {Kind.named(name): size for name, size in device.amounts}
    return {} if numa is None else {Place(numa, kind): size for kind, size in kinds.items() if kind is not None}


def _numa_node(device: str, through: Publish) -> int | None:
    if through is Publish.DEVICES:
        place = parse_memory_device(device)
        return None if place is None else place[1]
    parsed = parse_device(device)
    return parsed.number if parsed is not None and parsed.group_by is GroupBy.NUMA_NODE else None

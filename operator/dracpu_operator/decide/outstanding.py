"""Which claims were allocated for devices that a node is about to replace. Pure.

The kubelet may prepare a claim minutes after its allocation, and an agent may not list claims. So the operator lists
the claims that the agent has to expect in `CpuNode.spec.outstanding`, together with the settings that change the
devices.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from sys import intern
from typing import Any, Final, TypeVar, cast

from dracpu_api.device_names import belongs_to, is_published, parse_memory_device
from dracpu_api.memory_kinds import LIMIT
from dracpu_api.names import CAPACITIES_BESIDE_CPUS, CAPACITY_CPU, CAPACITY_SIZE, DRIVER, DRIVER_MEMORY
from dracpu_api.quantity import whole_number
from dracpu_api.resources import Json
from dracpu_api.settings import OutstandingClaim, OutstandingDevice, Settings

_T = TypeVar("_T", bound=Hashable)

_SHARED_PER_CLAIM: Final = 8  # values of a claim that are kept once: its node, its devices, all devices together
_SHARED_BY_FEW: Final = 10_000
_DRIVERS: Final = frozenset({DRIVER, DRIVER_MEMORY})

ClaimsByNode = Mapping[str, tuple[OutstandingClaim, ...]]


class AllocatedClaims:
    """The claims that are allocated on devices of our drivers, by node.

    A cluster may have very many claims, and an object takes some 3 KB: little is kept of each, and what is equal in
    many claims is kept once.
    """

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, OutstandingClaim]] = {}  # then by UID
        self._nodes: dict[str, tuple[str, ...]] = {}  # of each claim, by UID
        self._shared: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def store(self, claim: Json) -> set[str]:
        """Records a ResourceClaim as it is now; returns the nodes whose claims have changed."""
        metadata, found = claim["metadata"], _devices_by_node(claim)
        uid: str = metadata["uid"]
        changed: set[str] = set()
        for node in self._nodes.get(uid, ()):
            if node not in found:
                self._remove(uid, node)
                changed.add(node)
        for node, devices in found.items():
            record = OutstandingClaim(
                uid, intern(metadata["namespace"]), metadata["name"], self._once(tuple(map(self._once, devices)))
            )
            claims = self._by_node.setdefault(node, {})
            if claims.get(uid) != record:
                claims[uid] = record
                changed.add(node)
        if found:
            self._nodes[uid] = self._once(tuple(found))
        else:
            self._nodes.pop(uid, None)
        return changed

    def remove(self, uid: str) -> set[str]:
        """Removes a claim that is gone; returns the nodes whose claims have changed."""
        nodes = self._nodes.pop(uid, ())
        for node in nodes:
            self._remove(uid, node)
        return set(nodes)

    def keep(self, uids: Collection[str]) -> set[str]:
        """Removes all other claims: they are not in a complete list. Returns the nodes whose claims have changed."""
        return set().union(*[self.remove(uid) for uid in [uid for uid in self._nodes if uid not in uids]])

    def of(self, node: str) -> tuple[OutstandingClaim, ...]:
        """A node's claims, sorted by UID."""
        return tuple(sorted(self._by_node.get(node, {}).values(), key=lambda claim: claim.uid))

    def _remove(self, uid: str, node: str) -> None:
        claims = self._by_node[node]
        del claims[uid]
        if not claims:
            del self._by_node[node]

    def _once(self, value: _T) -> _T:
        if len(self._shared) > _SHARED_PER_CLAIM * len(self._nodes) + _SHARED_BY_FEW:
            self._shared.clear()  # most of it was of claims that are gone; later claims share among themselves
        return cast(_T, self._shared.setdefault(value, value))


def outstanding(
    claims: Iterable[OutstandingClaim], settings: Settings, listed: Iterable[OutstandingClaim] = ()
) -> tuple[OutstandingClaim, ...]:
    """Which of a node's claims to list; `listed` are those in the list now.

    The list is empty unless a claim has a device that `settings` do not publish: the scheduler itself counts claims on
    published devices. When such a claim has CPUs of the device, all claims with CPUs of the node are listed, because
    the agent has to keep CPUs for it that no other claim is entitled to. A claim that is allocated later, on a
    published device, is not added: the scheduler gives it what the agent still offers. Of memory, the agent has to keep
    an amount only, so that a claim whose memory alone is not published any more adds no others.
    """
    claims = tuple(claims)
    known = {claim.uid for claim in listed}
    foreign = {
        claim.uid: claim for claim in claims if not all(is_published(device, settings) for device in claim.devices)
    }
    keeping_cpus = {uid for uid, claim in foreign.items() if _has_cpus_of_former_devices(claim, settings)}
    if not keeping_cpus:
        return tuple(foreign.values())
    has_grown = not keeping_cpus <= known
    return tuple(
        claim
        for claim in claims
        if claim.uid in foreign or ((has_grown or claim.uid in known) and any(device.cpus for device in claim.devices))
    )


def results_of(claim: Json) -> list[Json]:
    """The devices of our drivers that a claim was given; none when it is not allocated."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    # a device that was given with adminAccess remains available to other claims
    return [result for result in results if result["driver"] in _DRIVERS and not result.get("adminAccess")]


def _has_cpus_of_former_devices(claim: OutstandingClaim, settings: Settings) -> bool:
    return any(device.cpus and not belongs_to(device.name, settings) for device in claim.devices)


def _devices_by_node(claim: Json) -> dict[str, list[OutstandingDevice]]:
    devices: dict[str, list[OutstandingDevice]] = {}
    for result in results_of(claim):
        device = _of_memory(result) if result["driver"] == DRIVER_MEMORY else _of_cpus(result)
        if device is not None:
            devices.setdefault(intern(result["pool"]), []).append(device)
    return devices


def _of_memory(result: Json) -> OutstandingDevice | None:
    """A device of memory; None for an amount, or for a device of another driver with this name, that every agent
    refuses."""
    name = intern(result["device"])
    place, size = parse_memory_device(name), _size(result, CAPACITY_SIZE)
    if place is None or size is None:
        return None
    kind, _ = place
    return OutstandingDevice(name, 0, DRIVER_MEMORY, ((kind, size),))


def _of_cpus(result: Json) -> OutstandingDevice | None:
    """A device of CPUs, with the memory that it was given, too; None for an amount that every agent refuses."""
    cpus = _cpus(result)
    if cpus is None:
        return None
    return OutstandingDevice(intern(result["device"]), cpus, amounts=_beside_cpus(result))


def _beside_cpus(result: Json) -> tuple[tuple[str, int], ...]:
    if len(result.get("consumedCapacity") or ()) <= 1:  # nearly all devices of CPUs have no other capacity
        return ()
    sizes = {kind: _size(result, capacity) for kind, capacity in CAPACITIES_BESIDE_CPUS.items()}
    return tuple((kind, size) for kind, size in sorted(sizes.items()) if size is not None)


def _size(result: Json, capacity: str) -> int | None:
    """How much of a capacity the claim was given; None for nothing, and for an amount that no machine has."""
    size = whole_number(str((result.get("consumedCapacity") or {}).get(capacity, "")))
    return size if size is not None and size < LIMIT else None


def _cpus(result: Json) -> int | None:
    """How many CPUs of the device the claim was given; None for an amount that every agent refuses."""
    consumed = result.get("consumedCapacity")
    if consumed is None:
        return 1  # a device of individual mode
    return whole_number(str(consumed.get(CAPACITY_CPU, "")))

"""Which claims were allocated for devices that a node is about to replace. Pure.

The kubelet may prepare a claim minutes after its allocation, and an agent may not list claims. So the operator lists
the claims that the agent has to expect in `CpuNode.spec.outstanding`, together with the settings that change the
devices.
"""

from collections.abc import Collection, Iterable, Mapping
from sys import intern
from typing import Any, Final, TypeVar, cast

from dracpu_api.device_names import belongs_to
from dracpu_api.names import CAPACITY_CPU, DRIVER
from dracpu_api.quantity import whole_number
from dracpu_api.resources import Json
from dracpu_api.settings import OutstandingClaim, Settings

_T = TypeVar("_T", bound=tuple[object, ...])

_SHARED_PER_CLAIM: Final = 8  # values of a claim that are kept once: its node, its devices, all devices together
_SHARED_BY_FEW: Final = 10_000

ClaimsByNode = Mapping[str, tuple[OutstandingClaim, ...]]


class AllocatedClaims:
    """The claims that are allocated on devices of our driver, by node.

    A cluster may have very many claims, and an object takes some 3 KB: little is kept of each, and what is equal in
    many claims is kept once.
    """

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, OutstandingClaim]] = {}  # then by UID
        self._nodes: dict[str, tuple[str, ...]] = {}  # of each claim, by UID
        self._shared: dict[tuple[object, ...], Any] = {}

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
    published devices. When there is such a claim, all claims of the node are listed, because the agent has to keep CPUs
    for it that no other claim is entitled to. A claim that is allocated later, on a published device, is not added: the
    scheduler gives it what the agent still offers.
    """
    claims = tuple(claims)
    known = {claim.uid for claim in listed}
    foreign = {claim.uid for claim in claims if not all(belongs_to(name, settings) for name, _ in claim.devices)}
    if not foreign:
        return ()
    return claims if foreign - known else tuple(claim for claim in claims if claim.uid in known)


def results_of(claim: Json) -> list[Json]:
    """The devices of our driver that a claim was given; none when it is not allocated."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    # a device that was given with adminAccess remains available to other claims
    return [result for result in results if result["driver"] == DRIVER and not result.get("adminAccess")]


def _devices_by_node(claim: Json) -> dict[str, list[tuple[str, int]]]:
    devices: dict[str, list[tuple[str, int]]] = {}
    for result in results_of(claim):
        cpus = _cpus(result)
        if cpus is not None:
            devices.setdefault(intern(result["pool"]), []).append((intern(result["device"]), cpus))
    return devices


def _cpus(result: Json) -> int | None:
    """How many CPUs of the device the claim was given; None for an amount that every agent refuses."""
    consumed = result.get("consumedCapacity")
    if consumed is None:
        return 1  # a device of individual mode
    return whole_number(str(consumed.get(CAPACITY_CPU, "")))

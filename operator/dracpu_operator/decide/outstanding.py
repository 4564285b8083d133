"""Which claims were allocated for devices that a node is about to replace. Pure.

The kubelet may prepare a claim minutes after its allocation, and an agent may not list claims. So the operator lists
the claims that the agent has to expect in `CpuNode.spec.outstanding`, together with the settings that change the
devices.
"""

from collections.abc import Collection, Iterable, Mapping

from dracpu_api.device_names import belongs_to
from dracpu_api.names import CAPACITY_CPU, DRIVER
from dracpu_api.quantity import whole_cpus
from dracpu_api.resources import Json
from dracpu_api.settings import OutstandingClaim, Settings

ClaimsByNode = Mapping[str, tuple[OutstandingClaim, ...]]


class AllocatedClaims:
    """Collects the claims that are allocated on some nodes. It is given one claim at a time, and keeps little of each:
    a cluster may have very many."""

    def __init__(self, nodes: Collection[str]) -> None:
        self._nodes = nodes
        self._found: dict[str, list[OutstandingClaim]] = {}

    def add(self, claim: Json) -> None:
        """Takes a ResourceClaim into account; one that is not allocated on these nodes is ignored."""
        for node, devices in _devices_by_node(claim).items():
            if node in self._nodes:
                metadata = claim["metadata"]
                allocated = OutstandingClaim(metadata["uid"], metadata["namespace"], metadata["name"], tuple(devices))
                self._found.setdefault(node, []).append(allocated)

    def by_node(self) -> dict[str, tuple[OutstandingClaim, ...]]:
        """Each node's claims, sorted by UID."""
        return {node: tuple(sorted(claims, key=lambda claim: claim.uid)) for node, claims in self._found.items()}


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
            devices.setdefault(result["pool"], []).append((result["device"], cpus))
    return devices


def _cpus(result: Json) -> int | None:
    """How many CPUs of the device the claim was given; None for an amount that every agent refuses."""
    consumed = result.get("consumedCapacity")
    if consumed is None:
        return 1  # a device of individual mode
    return whole_cpus(str(consumed.get(CAPACITY_CPU, "")))

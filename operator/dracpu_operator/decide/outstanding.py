"""Claims that the scheduler allocated for a node's former devices. Pure.

Prepare can come minutes after allocation, so an agent that changes its devices cannot know of them: the operator, which
alone may list claims, tells it (`CpuNode.spec.outstanding`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dracpu_api.device_names import belongs_to
from dracpu_api.names import CAPACITY_CPU, DRIVER
from dracpu_api.resources import Json
from dracpu_api.settings import OutstandingClaim, Settings

ClaimsByNode = Mapping[str, tuple[OutstandingClaim, ...]]

_MULTIPLES: Final = {"": 1, "k": 1000, "Ki": 1024}
_QUANTITY: Final = re.compile(r"([1-9]\d*)(k|Ki|)")  # as the API server writes whole numbers


class AllocatedClaims:
    """What the devices of some nodes were given to, collected one claim at a time: there may be very many, and of each
    object little is needed."""

    def __init__(self, nodes: Collection[str]) -> None:
        self._nodes = nodes
        self._found: dict[str, list[OutstandingClaim]] = {}

    def add(self, claim: Json) -> None:
        """A ResourceClaim; one that is not allocated, or on other nodes, drops out."""
        for node, devices in _devices_by_node(claim).items():
            if node in self._nodes:
                metadata = claim["metadata"]
                taken = OutstandingClaim(metadata["uid"], metadata["namespace"], metadata["name"], tuple(devices))
                self._found.setdefault(node, []).append(taken)

    def by_node(self) -> dict[str, tuple[OutstandingClaim, ...]]:
        """Each node's claims, in an order of their own."""
        return {node: tuple(sorted(taken, key=lambda claim: claim.uid)) for node, taken in self._found.items()}


def outstanding(
    claims: Iterable[OutstandingClaim], settings: Settings, listed: Iterable[OutstandingClaim] = ()
) -> tuple[OutstandingClaim, ...]:
    """What to list of a node's claims; `listed` is what stands there.

    Nothing, unless a claim has a device that is not there under `settings`: shares of those that are, the scheduler
    counts. But when the agent keeps CPUs for such a claim, it has to spare those that others may ask for by right: so
    they are listed with it. Claims that come later are given what is left, and are not news.
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
    # adminAccess takes nothing away from others
    return [result for result in results if result["driver"] == DRIVER and not result.get("adminAccess")]


def _devices_by_node(claim: Json) -> dict[str, list[tuple[str, int]]]:
    devices: dict[str, list[tuple[str, int]]] = {}
    for result in results_of(claim):
        cpus = _cpus(result)
        if cpus is not None:
            devices.setdefault(result["pool"], []).append((result["device"], cpus))
    return devices


def _cpus(result: Json) -> int | None:
    """How many CPUs of the device; None for an amount that no agent grants, which then holds nothing."""
    consumed = result.get("consumedCapacity")
    if consumed is None:
        return 1  # an individual device
    match = _QUANTITY.fullmatch(str(consumed.get(CAPACITY_CPU, "")))
    return int(match[1]) * _MULTIPLES[match[2]] if match else None

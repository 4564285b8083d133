"""Claims that the scheduler allocated for a node's former devices. Pure.

Prepare can come minutes after allocation, so an agent that changes its devices cannot know of them: the operator, which
alone may list claims, tells it (`CpuNode.spec.outstanding`).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dracpu_api.names import CAPACITY_CPU, DRIVER
from dracpu_api.settings import GroupBy, Mode, OutstandingClaim, Settings

Json = Mapping[str, Any]
ClaimsByNode = Mapping[str, tuple[OutstandingClaim, ...]]

_DEVICE_NAMES: Final = {
    (Mode.INDIVIDUAL, None): re.compile(r"cpudev\d{3,}"),
    (Mode.GROUPED, GroupBy.NUMA_NODE): re.compile(r"cpudevnuma\d{3,}"),
    (Mode.GROUPED, GroupBy.SOCKET): re.compile(r"cpudevsocket\d{3,}"),
    (Mode.GROUPED, GroupBy.MACHINE): re.compile(r"cpudevmachine"),
}
_MULTIPLES: Final = {"": 1, "k": 1000, "Ki": 1024}
_QUANTITY: Final = re.compile(r"([1-9]\d*)(k|Ki|)")  # as the API server writes whole numbers


def claims_by_node(claims: Iterable[Json]) -> dict[str, tuple[OutstandingClaim, ...]]:
    """ResourceClaim objects -> what each node's devices were given to; claims that are not allocated drop out."""
    found: dict[str, list[OutstandingClaim]] = {}
    for claim in claims:
        for node, devices in _devices_by_node(claim).items():
            metadata = claim["metadata"]
            taken = OutstandingClaim(metadata["uid"], metadata["namespace"], metadata["name"], tuple(devices))
            found.setdefault(node, []).append(taken)
    return {node: tuple(sorted(taken, key=lambda claim: claim.uid)) for node, taken in found.items()}


def foreign(claims: Iterable[OutstandingClaim], settings: Settings) -> tuple[OutstandingClaim, ...]:
    """Those with a device that is not there under `settings`; shares of a device that is, the scheduler counts."""
    return tuple(claim for claim in claims if not all(is_published(name, settings) for name, _ in claim.devices))


def is_published(device: str, settings: Settings) -> bool:
    """True when a device of that name is one that `settings` publish."""
    return _DEVICE_NAMES[settings.representation].fullmatch(device) is not None


def _devices_by_node(claim: Json) -> dict[str, list[tuple[str, int]]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    devices: dict[str, list[tuple[str, int]]] = {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        # adminAccess takes nothing away from others
        if result["driver"] == DRIVER and not result.get("adminAccess"):
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

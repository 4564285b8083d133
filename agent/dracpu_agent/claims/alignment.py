"""Finds the PCIe roots that a claim's CPUs should be close to, from constraints shared with other drivers' devices.

The scheduler ensures only that a device has some CPUs close to the root. The agent chooses the CPUs, so it has to know
the root. The allocation does not name it, but the slices of the other drivers do.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dracpu_agent.claims.opaque import concerns
from dracpu_api import names

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A device of another driver that shares a constraint with our devices."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """One constraint: all its devices are at the same PCIe root."""

    requests: frozenset[str]  # for our driver, "main" or "main/sub" as in the allocation's results
    neighbours: tuple[Neighbour, ...]


def alignments_of(claim: Json) -> tuple[Alignment, ...]:
    """The constraints on PCIe roots that apply to our devices and to those of other drivers."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    asked = (claim.get("spec") or {}).get("devices") or {}
    found = []
    for constraint in asked.get("constraints") or ():
        if constraint.get("matchAttribute") != names.ATTRIBUTE_PCIE_ROOT:
            continue
        concerned = [result for result in results if concerns(constraint.get("requests") or (), result["request"])]
        ours = frozenset(result["request"] for result in concerned if result["driver"] == names.DRIVER)
        others = [result for result in concerned if result["driver"] != names.DRIVER]
        if ours and others:
            neighbours = tuple(Neighbour(other["driver"], other["pool"], other["device"]) for other in others)
            found.append(Alignment(ours, neighbours))
    return tuple(found)


def roots_of(slices: Iterable[Json], neighbour: Neighbour) -> frozenset[str]:
    """The PCIe roots of a device, from the slices of its driver; none if they do not name any."""
    specs = [slice_object["spec"] for slice_object in slices]
    in_pool = [spec for spec in specs if spec["pool"]["name"] == neighbour.pool]
    newest = max((spec["pool"].get("generation", 0) for spec in in_pool), default=0)
    for spec in in_pool:
        for device in spec.get("devices") or ():
            if device["name"] == neighbour.device and spec["pool"].get("generation", 0) == newest:
                root = (device.get("attributes") or {}).get(names.ATTRIBUTE_PCIE_ROOT) or {}
                return frozenset([root["string"]] if "string" in root else root.get("strings") or ())
    return frozenset()


def matched(roots: Collection[frozenset[str]]) -> frozenset[str]:
    """The roots that all of these devices have in common; devices with unknown roots are ignored."""
    known = [device_roots for device_roots in roots if device_roots]
    return frozenset.intersection(*known) if known else frozenset()

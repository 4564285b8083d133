"""Close to which devices of other drivers a claim wants its CPUs: constraints that match on the PCIe root.

The scheduler has seen to it that a group has *some* CPUs close to the root. Which ones a request gets out of the group
is decided here on the node, so the agent has to know the root: the allocation does not name it, the slices of the other
drivers do.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dracpu_agent.claims.parameters import concerns
from dracpu_api import names

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A device of another driver."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """One constraint: devices that stand at one PCIe root."""

    requests: frozenset[str]  # of our driver, "main" or "main/sub" as in the allocation's results
    neighbours: tuple[Neighbour, ...]


def alignments_of(claim: Json) -> tuple[Alignment, ...]:
    """The constraints on PCIe roots that concern both our devices and others'."""
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
            neighbours = tuple(Neighbour(one["driver"], one["pool"], one["device"]) for one in others)
            found.append(Alignment(ours, neighbours))
    return tuple(found)


def roots_of(slices: Iterable[Json], neighbour: Neighbour) -> frozenset[str]:
    """The PCIe roots of a device, from the slices of its driver; none when they do not tell."""
    in_pool = [one["spec"] for one in slices if one["spec"]["pool"]["name"] == neighbour.pool]
    newest = max((spec["pool"].get("generation", 0) for spec in in_pool), default=0)
    for spec in in_pool:
        for device in spec.get("devices") or ():
            if device["name"] == neighbour.device and spec["pool"].get("generation", 0) == newest:
                root = (device.get("attributes") or {}).get(names.ATTRIBUTE_PCIE_ROOT) or {}
                return frozenset([root["string"]] if "string" in root else root.get("strings") or ())
    return frozenset()


def matched(roots: Collection[frozenset[str]]) -> frozenset[str]:
    """The roots at which all of these devices stand; devices of which nothing is known have no say."""
    known = [one for one in roots if one]
    return frozenset.intersection(*known) if known else frozenset()

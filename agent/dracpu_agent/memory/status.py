"""Builds the part of the CpuNode's status that shows memory: an entry for each kind on each NUMA node, with exact
quantities; and what the command `state` shows of a claim's use.
"""

from collections.abc import Mapping
from typing import Any

from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_api.quantity import format_binary


def memory_status(
    inventory: Inventory, there: Mapping[Place, int], promised: Mapping[Place, int], used: Mapping[Place, int]
) -> list[dict[str, Any]]:
    """An entry for each place of which claims can have something, or have something. `used` has the places where it is
    known what the containers of these claims use."""
    totals = _totals(inventory)
    return [
        {
            "numaNode": place.numa,
            "kind": place.kind.name,
            "total": format_binary(totals.get(place, 0)),
            "reserved": format_binary(max(0, totals.get(place, 0) - there.get(place, 0))),
            "promised": format_binary(promised.get(place, 0)),
            **({"used": format_binary(used[place])} if place in used else {}),
        }
        for place in sorted({*there, *promised})
    ]


def use_of(sizes: Mapping[Place, int], used: Mapping[Place, int]) -> list[dict[str, Any]]:
    """An entry for each place where a claim has something: how much, and what containers use of it."""
    return [
        {
            "numaNode": place.numa,
            "kind": place.kind.name,
            "claimed": format_binary(size),
            "used": format_binary(used.get(place, 0)),
        }
        for place, size in sorted(sizes.items())
    ]


def _totals(inventory: Inventory) -> Mapping[Place, int]:
    """The bytes of each kind on each NUMA node; those of hugepages do not count as ordinary memory."""
    totals: dict[Place, int] = {}
    for node in inventory.nodes:
        pages = {Place(node.numa, Kind(pages.size)): pages.count * pages.size for pages in node.pages}
        totals |= pages
        totals[Place(node.numa, MEMORY)] = node.total - sum(pages.values())
    return totals

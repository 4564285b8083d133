"""Builds the part of the CpuNode's status that shows memory: an entry for each kind on each NUMA node, with exact
quantities; and what the command `state` shows of a claim's use.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.own_pages import count
from dracpu_api.quantity import format_binary

_NOTHING: Final[Mapping[Place, int]] = MappingProxyType({})


def memory_status(
    inventory: Inventory,
    there: Mapping[Place, int],
    promised: Mapping[Place, int],
    used: Mapping[Place, int],
    wanted: Mapping[Place, int] = _NOTHING,
) -> list[dict[str, Any]]:
    """An entry for each place of which claims can have something, or have something, or where the settings name pages.
    `used` has the places where it is known what the containers of these claims use, and `wanted` the number of pages
    that the settings name."""
    totals = _totals(inventory)
    return [
        {
            "numaNode": place.numa,
            "kind": place.kind.name,
            "total": format_binary(totals.get(place, 0)),
            "reserved": format_binary(max(0, totals.get(place, 0) - there.get(place, 0))),
            "promised": format_binary(promised.get(place, 0)),
            **({"used": format_binary(used[place])} if place in used else {}),
            **({"provisioned": _provisioned(inventory, place, wanted[place])} if place in wanted else {}),
        }
        for place in sorted({*there, *promised, *wanted})
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


def _provisioned(inventory: Inventory, place: Place, wanted: int) -> Mapping[str, int]:
    return {"wanted": wanted, "got": min(wanted, count(inventory, place))}


def _totals(inventory: Inventory) -> Mapping[Place, int]:
    """The bytes of each kind on each NUMA node; those of hugepages do not count as ordinary memory."""
    totals: dict[Place, int] = {}
    for node in inventory.nodes:
        pages = {Place(node.numa, Kind(pages.size)): pages.count * pages.size for pages in node.pages}
        totals |= pages
        totals[Place(node.numa, MEMORY)] = node.total - sum(pages.values())
    return totals

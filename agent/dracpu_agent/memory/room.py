"""How much memory claims can have on each NUMA node, and how much a device may still promise.

Only arithmetic. What is there changes while the machine runs: pages come and go, and settings reserve more or less.
What was promised is never taken back; where it exceeds what is there, nothing more is promised.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from dracpu_agent.memory.inventory import Inventory, NumaMemory
from dracpu_agent.memory.kinds import MEMORY, Kind, Place

SMALLEST: Final = 16 * 1024**2  # of ordinary memory: a limit of 1 MiB ends the runtime's own first process
RESERVED_AT_LEAST: Final = 0.05  # of each NUMA node: the kernel's own memory and its watermarks, as measured


@dataclass(frozen=True, slots=True)
class OfferSettings:
    """The part of the settings that decides which memory is offered."""

    sizes: frozenset[int] | None = None  # of hugepages to offer, in bytes; None: every size that has pages
    reserved: Mapping[Place, int] = field(default_factory=dict)  # bytes; a place of ordinary memory has a default
    cpuless: bool = False  # offers NUMA nodes without CPUs too


def room(
    inventory: Inventory, offer_settings: OfferSettings, system: int = 0, with_cpus: Collection[int] = ()
) -> Mapping[Place, int]:
    """Bytes that claims can have, by place. `system` is what the kubelet reserves of the whole machine; where the
    settings reserve nothing, it is spread over the offered NUMA nodes by their size. `with_cpus` are nodes that have
    CPUs, perhaps offline ones."""
    offered = [node for node in inventory.nodes if node.cpus or node.numa in with_cpus or offer_settings.cpuless]
    ordinary = {node.numa: _ordinary(node) for node in offered}
    found: dict[Place, int] = {}
    for node in offered:
        share = system * ordinary[node.numa] // (sum(ordinary.values()) or 1)
        default = max(share, int(node.total * RESERVED_AT_LEAST))
        memory = Place(node.numa, MEMORY)
        size = _whole(ordinary[node.numa] - offer_settings.reserved.get(memory, default), inventory.base_page)
        found[memory] = size if size >= SMALLEST else 0
        for pages in node.pages:
            place = Place(node.numa, Kind(pages.size))
            if offer_settings.sizes is None or pages.size in offer_settings.sizes:
                found[place] = _whole(pages.count * pages.size - offer_settings.reserved.get(place, 0), pages.size)
    return {place: size for place, size in found.items() if size > 0}


def capacity(there: int, counted: int, uncounted: int) -> int:
    """The amount that a device offers. The scheduler subtracts what claims consume that it knows (`counted`); other
    claims still hold something too (`uncounted`), such as those that linger. A promise that cannot be kept leaves the
    capacity at what is consumed, so that the scheduler refuses any further amount."""
    return max(there - uncounted, counted)


def missing(there: Mapping[Place, int], promised: Mapping[Place, int]) -> Mapping[Place, int]:
    """By how much promises exceed what is there, by place."""
    return {place: size - there.get(place, 0) for place, size in promised.items() if size > there.get(place, 0)}


def node_text(numbers: Collection[int]) -> str:
    """NUMA nodes as the variables of containers name them: "0,1"."""
    return ",".join(str(number) for number in sorted(numbers))


def _ordinary(node: NumaMemory) -> int:
    """The memory of a node without its hugepages; surplus ones are in use."""
    return node.total - sum((pages.count + pages.surplus) * pages.size for pages in node.pages)


def _whole(size: int, page: int) -> int:
    return max(0, size // page * page)

"""Decides how many hugepages an agent makes while the machine runs, and how many it gives back. Only arithmetic.

Pages are made of memory that is neither used nor promised: of what is free beyond what stays free, less what claims
were promised and do not use yet; and of what could still be promised, so that no promise is broken. An agent gives back
only pages that it has made itself, as far as they are free and not promised. Pages that were there before are never
taken away.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from dracpu_agent.memory.available import Available
from dracpu_agent.memory.inventory import Inventory, Pages
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.own_pages import Change, OwnPages, count, with_pages
from dracpu_agent.memory.room import RESERVED_AT_LEAST
from dracpu_api.settings import MemorySettings

KEPT_FREE: Final = 100 * 1024**2  # of each NUMA node: the kubelet's default threshold for evicting pods of a machine
GIGANTIC: Final = 1024**3  # such pages are not found in one piece once a machine runs

_NOTHING: Final = Available(0, 0)

TOO_LARGE: Final = "pages of 1Gi and larger belong on the kernel's command line"
UNSUPPORTED: Final = "the kernel has no pages of this size"
PROMISED: Final = "the rest of the NUMA node's memory is reserved, promised to claims, or not offered"
NOT_FREE: Final = "no more memory is free than has to stay free"
SURPLUS: Final = "surplus pages of this size are in use on another NUMA node, and the kernel would count them here"


@dataclass(frozen=True, slots=True)
class Found:
    """The memory and the hugepages of the machine, as they were read at one time."""

    inventory: Inventory
    available: Mapping[int, Available]  # by NUMA node
    mapped: Mapping[int, int]  # size of a page -> free pages, on any NUMA node, that programs have reserved
    boot: str = ""  # another one after each start of the machine


@dataclass(frozen=True, slots=True)
class Promises:
    """The promises that claims were given, in bytes by place."""

    room: Callable[[Inventory], Mapping[Place, int]]  # what claims could have in all on such a machine
    promised: Mapping[Place, int] = field(default_factory=dict)  # what they have
    used: Mapping[Place, int] = field(default_factory=dict)  # what their containers use, as far as it is known
    reserved: Mapping[Place, int] = field(default_factory=dict)  # what the settings keep for others
    system: int = 0  # what the kubelet keeps of the machine, its threshold for evicting pods included

    def unused(self, place: Place) -> int:
        """Bytes that claims have and may still take from what is free."""
        return max(0, self.promised.get(place, 0) - self.used.get(place, 0))

    def left_of(self, available: Available, numa: int) -> int:
        """Bytes of a NUMA node that claims leave to others. What they use may be files that can be dropped; they get
        that memory back nevertheless."""
        memory = Place(numa, MEMORY)
        files = max(0, available.files - self.used.get(memory, 0))
        return available.free + files - self.unused(memory)

    def unpromised(self, inventory: Inventory, numa: int) -> int:
        """Bytes of ordinary memory that claims could still be promised on a NUMA node."""
        memory = Place(numa, MEMORY)
        return max(0, self.room(inventory).get(memory, 0) - self.promised.get(memory, 0))

    def survive(self, before: Inventory, after: Inventory) -> bool:
        """Whether no promise of ordinary memory would be broken. What the kubelet keeps for the system is spread over
        all NUMA nodes, so pages on one of them leave less ordinary memory on the others, too."""
        was, will_be = self.room(before), self.room(after)
        return all(
            will_be.get(place, 0) >= min(size, was.get(place, 0))
            for place, size in self.promised.items()
            if not place.kind.is_huge
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes that can be made now, those that give pages back first; and why not more pages are made."""

    changes: tuple[Change, ...]
    reasons: Mapping[Place, str]  # of places that get fewer pages than wanted


def plan(found: Found, wanted: Mapping[Place, int], own: OwnPages, promises: Promises) -> Plan:
    """Decides what to change. The pages that are there must have been `observed`."""
    giving = {place: -_own_to_give(found, place, wanted.get(place, 0), own, promises) for place in own.places}
    growing, reasons = _growth(found, wanted, promises)
    there = ((place, count(found.inventory, place), more) for place, more in (*giving.items(), *growing.items()))
    return Plan(tuple(Change(place, now, now + more) for place, now, more in there if more), reasons)


def wanted_pages(settings: MemorySettings) -> Mapping[Place, int]:
    """How many pages the settings name, by place; none where memory is not offered."""
    entries = settings.provision if settings.enabled else ()
    return {Place(entry.numa_node, Kind(entry.size)): entry.pages for entry in entries}


def lacking(inventory: Inventory, wanted: Mapping[Place, int]) -> Mapping[Place, int]:
    """How many pages are missing, by place."""
    missing = {place: pages - count(inventory, place) for place, pages in wanted.items()}
    return {place: pages for place, pages in missing.items() if pages > 0}


def too_many(inventory: Inventory, wanted: Mapping[Place, int], own: OwnPages) -> Mapping[Place, int]:
    """How many of the agent's own pages are not wanted any more, by place."""
    over = {place: own.unwanted(inventory, place, wanted.get(place, 0)) for place in own.places}
    return {place: pages for place, pages in over.items() if pages > 0}


def kept_free(total: int, system: int = 0) -> int:
    """Bytes of a NUMA node that stay free when pages are made: what the kernel needs, and what the kubelet keeps there
    for the system. That is at least its threshold for evicting pods."""
    return max(KEPT_FREE, int(total * RESERVED_AT_LEAST), system)


def _growth(
    found: Found, wanted: Mapping[Place, int], promises: Promises
) -> tuple[Mapping[Place, int], Mapping[Place, str]]:
    """How many pages can be made at each place, the largest first; and the reasons where these are less than wanted."""
    growing: dict[Place, int] = {}
    reasons: dict[Place, str] = {}
    inventory, taken = found.inventory, Counter[int]()
    for place, missing in sorted(lacking(inventory, wanted).items(), key=lambda item: -item[0].kind.page):
        if reason := _impossible(found.inventory, place):
            reasons[place] = reason
            continue
        page, node = place.kind.page, found.inventory.by_numa[place.numa]
        left = promises.left_of(found.available.get(place.numa, _NOTHING), place.numa)
        kept = kept_free(node.total, promises.system * node.total // _total(inventory))
        affordable = min(missing, max(0, left - taken[place.numa] - kept) // page)
        unpromised = min(affordable, promises.unpromised(inventory, place.numa) // page)
        pages = _most(unpromised, partial(_keeps_promises, promises, inventory, place))
        if pages < missing:
            reasons[place] = NOT_FREE if pages == affordable else PROMISED
        if pages:
            growing[place] = pages
            taken[place.numa] += pages * page
            inventory = _with_more(inventory, place, pages)
    return growing, reasons


def _keeps_promises(promises: Promises, inventory: Inventory, place: Place, pages: int) -> bool:
    return promises.survive(inventory, _with_more(inventory, place, pages))


def _most(limit: int, allowed: Callable[[int], bool]) -> int:
    """The largest number up to a limit that is allowed; where a number is not allowed, no larger one is."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle - 1)
    return low


def _impossible(inventory: Inventory, place: Place) -> str:
    """Why no page can be made at a place; "" if pages can be made."""
    if place.kind.page >= GIGANTIC:
        return TOO_LARGE
    node = inventory.by_numa.get(place.numa)
    if node is None or not any(pages.size == place.kind.page for pages in node.pages):
        return UNSUPPORTED
    return SURPLUS if _surplus_elsewhere(inventory, place) else ""


def _own_to_give(found: Found, place: Place, wanted: int, own: OwnPages, promises: Promises) -> int:
    """How many of its own pages the agent can give back: of those that are not wanted any more, the ones that are free
    and neither promised, nor reserved for others, nor mapped by programs that have not touched them yet."""
    if _surplus_elsewhere(found.inventory, place):
        return 0
    page = place.kind.page
    pages = found.inventory.by_numa[place.numa].pages_of(page)
    unpromised = pages.count * page - promises.reserved.get(place, 0) - promises.promised.get(place, 0)
    # the kernel counts mapped pages for the whole machine, and they may all be on this NUMA node
    free = pages.free - found.mapped.get(page, 0) - _pages_for(promises.unused(place), page)
    return max(0, min(own.unwanted(found.inventory, place, wanted), unpromised // page, free))


def _surplus_elsewhere(inventory: Inventory, place: Place) -> bool:
    """Whether others have surplus pages: some kernels add the surplus pages of the other NUMA nodes to the number that
    is written for one."""
    return any(node.pages_of(place.kind.page).surplus for node in inventory.nodes if node.numa != place.numa)


def _with_more(inventory: Inventory, place: Place, more: int) -> Inventory:
    """The machine with more pages at a place."""

    def changed(numa: int, pages: Pages) -> Pages:
        here = Place(numa, Kind(pages.size)) == place
        return replace(pages, count=pages.count + more) if here else pages

    return with_pages(inventory, changed)


def _total(inventory: Inventory) -> int:
    return sum(node.total for node in inventory.nodes)


def _pages_for(size: int, page: int) -> int:
    return -(-size // page)

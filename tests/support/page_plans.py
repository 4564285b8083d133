"""Builds machines, promises and records of made pages for tests of the hugepages that agents make."""

from collections.abc import Mapping
from functools import partial

from dracpu_agent.memory.available import Available
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.own_pages import Change, OwnPages, count, with_pages
from dracpu_agent.memory.provision import (
    Found,
    Plan,
    Promises,
)
from dracpu_agent.memory.room import OfferSettings, room
from dracpu_api.cpuset import CpuSet

MI, GI = 1024**2, 1024**3
SMALL, MIDDLE, LARGE = Kind(2 * MI), Kind(32 * MI), Kind(GI)
HERE, BESIDE, OTHER = Place(0, SMALL), Place(0, MIDDLE), Place(1, SMALL)
NOTHING_RESERVED = OfferSettings(reserved={Place(0, MEMORY): 0, Place(1, MEMORY): 0})


def inventory(small: int = 0, free: int | None = None, *, surplus: int = 0, other: int = 0) -> Inventory:
    """Two NUMA nodes of 4 GiB, which can have pages of three sizes."""

    def node(numa: int, *pages: Pages) -> NumaMemory:
        return NumaMemory(numa, CpuSet((numa,)), 4 * GI, None, (*pages, Pages(MIDDLE.page, 0, 0), Pages(GI, 0, 0)))

    first = Pages(SMALL.page, small, small if free is None else free, surplus)
    return Inventory((node(0, first), node(1, Pages(SMALL.page, other, other))))


def found(machine: Inventory, free: int = 4 * GI, mapped: int = 0, files: int = 0) -> Found:
    """What was read of a machine with this much free memory on each NUMA node."""
    return Found(machine, {numa: Available(free, files) for numa in (0, 1)}, {SMALL.page: mapped}, "boot 1")


def promises(
    promised: Mapping[Place, int] | None = None, offer_settings: OfferSettings = NOTHING_RESERVED, system: int = 0
) -> Promises:
    """What claims were promised, and what the settings reserve."""
    of_machine = partial(room, offer_settings=offer_settings, system=system)
    return Promises(of_machine, promised or {}, reserved=offer_settings.reserved, system=system)


def made(place: Place, own: int, machine: Inventory) -> OwnPages:
    """Returns the record of an agent that has made `own` of the pages that are there now."""
    now = count(machine, place)
    before = with_pages(machine, lambda numa, pages: pages)
    record = OwnPages().observed(before, "boot 1").intending(Change(place, now - own, now))
    return record.observed(machine, "boot 1")


def changes(made_plan: Plan) -> dict[Place, tuple[int, int]]:
    """The numbers of pages before and after, by place."""
    return {change.place: (change.now, change.then) for change in made_plan.changes}

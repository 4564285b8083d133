"""Which hugepages an agent has made while the machine runs, so that it never takes away any others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dracpu_agent.memory.inventory import Inventory, Pages
from dracpu_agent.memory.kinds import Kind, Place, place_of


@dataclass(frozen=True, slots=True)
class Change:
    """The number of pages that a place has, without surplus ones, and the one that it is to get."""

    place: Place
    now: int
    then: int

    @property
    def grows(self) -> bool:
        """Whether pages are made."""
        return self.then > self.now


@dataclass(frozen=True, slots=True)
class _Pool:
    """The pages of a place, as they were counted last."""

    own: int  # those that the agent has made
    total: int
    others: int  # those of others when the agent made some last


@dataclass(frozen=True)
class OwnPages:
    """Which pages the agent has made.

    Others may make and take pages at any time, also while no agent runs. Pages that have disappeared count as the
    agent's own, and pages that have appeared as those of others: so the number of others' pages is never taken for too
    small. What the agent makes is recorded before, what it gives back is counted afterwards: an agent that is killed
    between the two steps never takes others' pages for its own.
    """

    _pools: Mapping[Place, _Pool] = field(default_factory=dict)
    _boot: str = ""
    _giving: Mapping[Place, int] = field(default_factory=dict)  # the totals of places that are being made smaller
    _aims: Mapping[Place, int] = field(default_factory=dict)  # the totals when a change that takes several steps ends

    def of(self, place: Place) -> int:
        """How many pages of a place the agent has made."""
        pool = self._pools.get(place)
        return 0 if pool is None else pool.own

    def unwanted(self, inventory: Inventory, place: Place, wanted: int) -> int:
        """How many of its pages the agent has made for settings that wanted more. That others have added pages since is
        no reason to give any back: the agent would undo what they do."""
        pool = self._pools.get(place)
        if pool is None or wanted >= pool.others + pool.own:
            return 0
        return max(0, min(pool.own, count(inventory, place) - wanted))

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the agent has made pages."""
        return tuple(sorted(place for place, pool in self._pools.items() if pool.own))

    def observed(self, inventory: Inventory, boot: str) -> "OwnPages":
        """The pages have been counted. Nothing is left of what was made before the machine has been restarted."""
        pools = {}
        for place, pool in self._pools.items() if boot == self._boot else ():
            total = count(inventory, place)
            own = max(0, pool.own - max(0, pool.total - total))
            if own or pool.own:  # one that has just become empty stays until it is counted again
                pools[place] = _Pool(own, total, pool.others)
        return OwnPages(pools, boot, {}, self._aims)

    def aiming(self, totals: Mapping[Place, int]) -> "OwnPages":
        """Places will get these numbers of pages, perhaps in several steps; without any, the change has ended."""
        return replace(self, _aims=totals)

    def intending(self, change: Change) -> "OwnPages":
        """The pages will be changed now. They were counted just before."""
        if not change.grows:
            return replace(self, _giving={**self._giving, change.place: change.then})
        own = self.of(change.place)
        pool = _Pool(own + change.then - change.now, change.then, change.now - own)
        return replace(self, _pools={**self._pools, change.place: pool})

    def agrees_with(self, inventory: Inventory) -> bool:
        """Whether the pages are as they were counted last."""
        return all(count(inventory, place) == pool.total for place, pool in self._pools.items())

    def cautious(self, inventory: Inventory) -> Inventory:
        """The machine while pages are changed: those that come are no ordinary memory any more, and no pages yet;
        those that go are no pages any more, and no ordinary memory yet. That holds for all steps of a change from its
        beginning."""
        changing = self._giving or self._aims or not self.agrees_with(inventory)
        return with_pages(inventory, self._between) if changing else inventory

    def state(self) -> dict[str, object]:
        """The pages as JSON; nothing without any."""
        pools = {
            place.device: {"own": pool.own, "total": pool.total, "others": pool.others}
            for place, pool in sorted(self._pools.items())
            if pool.own
        }
        return {"boot": self._boot, "pools": pools} if pools else {}

    def _between(self, numa: int, pages: Pages) -> Pages:
        place = Place(numa, Kind(pages.size))
        pool = self._pools.get(place)
        total = pages.count if pool is None else pool.total
        coming = self._giving.get(place, self._aims.get(place, total))
        moving = abs(pages.count - coming)
        return replace(pages, count=min(pages.count, coming), surplus=pages.surplus + moving)


def own_pages(state: object) -> OwnPages:
    """The inverse of `OwnPages.state`. What cannot be read counts as made by others."""
    if not isinstance(state, dict) or not isinstance(state.get("pools"), dict):
        return OwnPages()
    pools = {}
    for device, pool in state["pools"].items():
        place = place_of(device) if isinstance(device, str) else None
        if place is None or not place.kind.is_huge:
            continue
        match pool:
            case {"own": int(own), "total": int(total), "others": int(others)} if 0 < own <= total:
                pools[place] = _Pool(own, total, others)
    return OwnPages(pools, str(state.get("boot", "")))


def count(inventory: Inventory, place: Place) -> int:
    """The pages of a place, without surplus ones."""
    node = inventory.by_numa.get(place.numa)
    return 0 if node is None else node.pages_of(place.kind.page).count


def with_pages(inventory: Inventory, changed: Callable[[int, Pages], Pages]) -> Inventory:
    """The machine with other pages; `changed` gets the number of a NUMA node and its pages of one size."""
    return replace(
        inventory,
        nodes=tuple(
            replace(node, pages=tuple(changed(node.numa, pages) for pages in node.pages)) for node in inventory.nodes
        ),
    )

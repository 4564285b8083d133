"""Computes how many hugepages claims can really have. Only arithmetic.

Pods also get hugepages that they request in their spec, from the same pools, and no cgroup keeps such a pod off the
pages of a claim. So a claim is granted only where enough pages are free besides those that others were promised and
those that such pods may still take.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dracpu_agent.memory.inventory import Inventory, Pages
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.use import ClaimsUse, Sizes, summed


@dataclass(frozen=True, slots=True)
class PagesLook:
    """The hugepages as they were read just now."""

    inventory: Inventory
    used: Sizes  # by containers, of their claims
    others: Mapping[int, int]  # size of a page -> bytes that pods may still take without a claim


def pages_for_claims(look: PagesLook, reserved: Sizes, promised: Sizes) -> Sizes:
    """Bytes that claims can have in all, what they use already included, by place.

    Pods without claims are expected to take what is `reserved` first, wherever that is. What they may take beyond it,
    they may take on any NUMA node, so it is missing on each.
    """
    spare: dict[int, int] = {}  # size of a page -> bytes left of what is reserved
    found: dict[Place, int] = {}
    for place, pages in _places(look.inventory):
        used = look.used.get(place, 0)
        found[place] = has = pages.free * pages.size + used
        taken = max(0, (pages.count + pages.surplus) * pages.size - has)  # by pods without claims, and by the host
        left = min(reserved.get(place, 0) - taken, has - promised.get(place, 0))
        spare[pages.size] = spare.get(pages.size, 0) + max(0, left)
    return {
        place: max(0, has - max(0, look.others.get(place.kind.page, 0) - spare[place.kind.page]))
        for place, has in found.items()
    }


def used_by_claims(use: ClaimsUse, inventory: Inventory) -> Sizes:
    """Bytes of pages that claims use. Claims that could not be read use what they used last, or else all that they
    have, as far as so many pages are in use: otherwise they would be neither free nor used, and no claim would be
    granted."""
    known, others = summed(use.by_claim.values()), summed(use.not_read.values())
    found = dict(known)
    for place, pages in _places(inventory):
        in_use = (pages.count + pages.surplus - pages.free) * pages.size
        has = known.get(place, 0)
        found[place] = has + min(others.get(place, 0), max(0, in_use - has))
    return found


def shared_pages(allocatable: Mapping[int, int], reserved: Sizes, offered: Sizes) -> dict[Kind, int]:
    """The bytes of each kind of offered pages that the kubelet may also give pods that request them in their spec, as
    far as nothing is reserved for these."""
    kinds = sorted({place.kind for place in offered if place.kind.is_huge})
    kept = {kind: sum(size for place, size in reserved.items() if place.kind == kind) for kind in kinds}
    shared = {kind: allocatable.get(kind.page, 0) - kept[kind] for kind in kinds}
    return {kind: size for kind, size in shared.items() if size > 0}


def _places(inventory: Inventory) -> Iterator[tuple[Place, Pages]]:
    for node in inventory.nodes:
        for pages in node.pages:
            yield Place(node.numa, Kind(pages.size)), pages

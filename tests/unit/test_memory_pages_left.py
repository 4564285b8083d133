"""How many hugepages claims can really have, beside pods that request some in their spec."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.pages_left import PagesLook, pages_for_claims, shared_pages
from dracpu_agent.memory.room import OfferSettings, room
from dracpu_agent.memory.use import Sizes
from dracpu_api.cpuset import CpuSet

MI = 1024**2
PAGE = 2 * MI
SMALL = Kind(PAGE)
NEAR, FAR = Place(0, SMALL), Place(1, SMALL)


def look(free: tuple[int, int], used: Sizes | None = None, others: int = 0, count: int = 10) -> PagesLook:
    """Two NUMA nodes with `count` pages each; `others` is what pods may still take, in pages."""
    nodes = (NumaMemory(numa, CpuSet((numa,)), 64 * MI, None, (Pages(PAGE, count, free[numa]),)) for numa in (0, 1))
    return PagesLook(Inventory(tuple(nodes)), used or {}, {PAGE: others * PAGE})


def pages(found: Mapping[Place, int]) -> tuple[int, int]:
    return found[NEAR] // PAGE, found[FAR] // PAGE


def test_pages_that_programs_without_claims_use_are_missing() -> None:
    assert pages(pages_for_claims(look((4, 10)), {}, {})) == (4, 10)


def test_pages_that_claims_use_already_are_theirs() -> None:
    assert pages(pages_for_claims(look((4, 10), {NEAR: 6 * PAGE}), {}, {NEAR: 8 * PAGE})) == (10, 10)


def test_pages_that_pods_may_still_take_are_missing_on_every_node() -> None:
    assert pages(pages_for_claims(look((10, 8), others=3), {}, {})) == (7, 5)


def test_what_pods_may_take_is_taken_from_what_is_reserved_first() -> None:
    assert pages(pages_for_claims(look((10, 10), others=3), {FAR: 2 * PAGE}, {})) == (9, 9)


def test_what_is_reserved_and_used_already_covers_nothing_more() -> None:
    assert pages(pages_for_claims(look((10, 8), others=3), {FAR: 2 * PAGE}, {})) == (7, 5)


def test_what_is_reserved_covers_nothing_where_promises_need_it() -> None:
    """Other programs have taken so much that the promises use up what is reserved."""
    assert pages(pages_for_claims(look((10, 8), others=2), {FAR: 2 * PAGE}, {FAR: 8 * PAGE})) == (8, 6)


amounts = st.integers(0, 10)
both = st.tuples(amounts, amounts)


@given(reserved=both, taken=both, used=both, asked=both, more=amounts)
def test_pods_that_keep_to_what_is_reserved_never_prevent_a_claim_that_fits(reserved, taken, used, asked, more) -> None:
    count = 10
    reserves = {place: kept * PAGE for place, kept in zip((NEAR, FAR), reserved, strict=True)}
    taken = [min(pair) for pair in zip(taken, reserved, strict=True)]
    promised = [min(wanted, count - kept) for wanted, kept in zip(asked, reserved, strict=True)]
    touched = [min(pair) for pair in zip(used, promised, strict=True)]
    free = (count - taken[0] - touched[0], count - taken[1] - touched[1])
    uses = {NEAR: touched[0] * PAGE, FAR: touched[1] * PAGE}
    found = look(free, uses, min(more, sum(reserved) - sum(taken)))
    promises = {NEAR: promised[0] * PAGE, FAR: promised[1] * PAGE}
    there = pages_for_claims(found, reserves, promises)
    fits = room(found.inventory, OfferSettings(reserved=reserves))
    assert all(there[place] >= fits.get(place, 0) for place in (NEAR, FAR))


@given(free=both, used=both, promised=both, others=amounts)
def test_without_a_reserve_nothing_is_left_for_a_claim_that_others_may_take(free, used, promised, others) -> None:
    uses = {NEAR: used[0] * PAGE, FAR: used[1] * PAGE}
    promises = {NEAR: promised[0] * PAGE, FAR: promised[1] * PAGE}
    left = pages(pages_for_claims(look(free, uses, others), {}, promises))
    assert left == tuple(max(0, free[numa] + used[numa] - others) for numa in (0, 1))


def test_pages_of_the_kubelet_are_shared_as_far_as_nothing_is_reserved() -> None:
    offered = {Place(0, MEMORY): 64 * MI, NEAR: 8 * PAGE, FAR: 8 * PAGE}
    allocatable = {PAGE: 20 * PAGE, 1024 * MI: 1024 * MI}
    assert shared_pages(allocatable, {NEAR: 5 * PAGE}, offered) == {SMALL: 15 * PAGE}
    assert shared_pages(allocatable, {NEAR: 10 * PAGE, FAR: 10 * PAGE}, offered) == {}
    assert shared_pages({}, {}, offered) == {}
    assert shared_pages(allocatable, {}, {Place(0, MEMORY): 64 * MI}) == {}

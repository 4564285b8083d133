"""How much memory claims can have on each NUMA node."""

from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.room import OfferSettings, capacity, missing, room
from dracpu_api.cpuset import EMPTY, CpuSet

MI, GI = 1024**2, 1024**3
SMALL, LARGE = Kind(2 * MI), Kind(GI)


def node(numa: int, total: int, *pages: Pages, cpus: CpuSet | None = None) -> NumaMemory:
    return NumaMemory(numa, CpuSet((numa,)) if cpus is None else cpus, total, None, pages)


MACHINE = Inventory(
    (
        node(0, 8 * GI, Pages(2 * MI, 512, 500), Pages(GI, 1, 1)),
        node(3, 8 * GI, Pages(2 * MI, 0, 0), Pages(GI, 0, 0)),
        node(7, 16 * GI, cpus=EMPTY),
    )
)


def test_hugepages_are_not_offered_as_ordinary_memory_too() -> None:
    nothing_reserved = {Place(numa, MEMORY): 0 for numa in (0, 3)}
    assert room(MACHINE, OfferSettings(reserved=nothing_reserved)) == {
        Place(0, MEMORY): 6 * GI,
        Place(0, SMALL): GI,
        Place(0, LARGE): GI,
        Place(3, MEMORY): 8 * GI,
    }


def test_a_twentieth_of_each_node_is_reserved_where_the_settings_reserve_nothing() -> None:
    found = room(MACHINE, OfferSettings(reserved={Place(3, MEMORY): GI}))
    assert found[Place(0, MEMORY)] == (6 * GI - 8 * GI // 20) // 4096 * 4096
    assert found[Place(3, MEMORY)] == 7 * GI


def test_what_the_kubelet_reserves_is_spread_by_size() -> None:
    two = Inventory((node(0, 10 * GI), node(1, 30 * GI)))
    assert room(two, OfferSettings(), system=8 * GI) == {Place(0, MEMORY): 8 * GI, Place(1, MEMORY): 24 * GI}


def test_what_the_kubelet_reserves_is_not_spread_over_nodes_that_are_not_offered() -> None:
    beside_a_gpu = Inventory((node(0, 10 * GI), node(1, 30 * GI, cpus=EMPTY)))
    assert room(beside_a_gpu, OfferSettings(), system=2 * GI) == {Place(0, MEMORY): 8 * GI}


def test_surplus_pages_are_no_ordinary_memory() -> None:
    taken_away = Inventory((node(0, 8 * GI, Pages(2 * MI, 0, 0, surplus=512)),))
    assert room(taken_away, OfferSettings(reserved={Place(0, MEMORY): 0})) == {Place(0, MEMORY): 7 * GI}


def test_less_memory_than_a_container_can_start_with_is_not_offered() -> None:
    assert room(MACHINE, OfferSettings(reserved={Place(3, MEMORY): 8 * GI - 15 * MI})).keys() == {
        Place(0, MEMORY),
        Place(0, SMALL),
        Place(0, LARGE),
    }


def test_pages_of_another_size_than_4_kib_are_whole_too() -> None:
    arm = Inventory((node(0, 8 * GI),), base_page=64 * 1024)
    (size,) = room(arm, OfferSettings()).values()
    assert size % (64 * 1024) == 0


def test_pages_are_reserved_as_whole_pages() -> None:
    found = room(MACHINE, OfferSettings(reserved={Place(0, SMALL): 3 * MI}))
    assert found[Place(0, SMALL)] == GI - 4 * MI


def test_only_the_sizes_of_the_settings_are_offered() -> None:
    assert {place.kind for place in room(MACHINE, OfferSettings(sizes=frozenset([GI])))} == {MEMORY, LARGE}


def test_nodes_without_cpus_are_offered_only_on_request() -> None:
    assert Place(7, MEMORY) not in room(MACHINE, OfferSettings())
    assert Place(7, MEMORY) in room(MACHINE, OfferSettings(cpuless=True))
    assert Place(7, MEMORY) in room(MACHINE, OfferSettings(), with_cpus={7})  # they are offline


sizes = st.integers(0, 64)


@given(there=sizes, counted=sizes, uncounted=sizes)
def test_the_scheduler_can_give_no_more_than_is_not_promised(there: int, counted: int, uncounted: int) -> None:
    left = capacity(there, counted, uncounted) - counted
    assert left == max(0, there - counted - uncounted)


def test_promises_that_exceed_what_is_there_are_named() -> None:
    promised = {Place(0, SMALL): 8 * MI, Place(0, LARGE): GI, Place(1, SMALL): 2 * MI}
    there = {Place(0, SMALL): 6 * MI, Place(0, LARGE): GI}
    assert missing(there, promised) == {Place(0, SMALL): 2 * MI, Place(1, SMALL): 2 * MI}

"""The memory that containers use is divided between their claims: none gets more than it has, and nothing is lost."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.use import Sizes, Using, share_out, spread, steadily, without_own_pages

MI, GI = 1024**2, 1024**3
PAGES = Kind(2 * MI)
NEAR, FAR = Place(0, MEMORY), Place(1, MEMORY)
NEAR_PAGES, FAR_PAGES = Place(0, PAGES), Place(1, PAGES)

places = st.sampled_from([NEAR, FAR, NEAR_PAGES, FAR_PAGES])
amounts = st.dictionaries(places, st.integers(0, 64))
gives = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.dictionaries(places, st.integers(1, 64), min_size=1))


@st.composite
def containers(draw: st.DrawFn) -> list[Using]:
    """Containers, some of which share devices."""
    devices = draw(gives)
    names = st.sets(st.sampled_from(sorted(devices)), min_size=1) if devices else st.just(set())
    return [
        Using(f"c{number}", draw(amounts), {name: devices[name] for name in draw(names)})
        for number in range(draw(st.integers(0, 3)))
    ]


def total(sizes: list[Sizes]) -> Counter[Place]:
    sums: Counter[Place] = Counter()
    for some in sizes:
        sums.update(some)
    return +sums


@given(containers())
def test_use_is_divided_and_no_device_is_used_more_than_it_has(found: list[Using]) -> None:
    shares = share_out(found)
    for container in found:
        for device, sizes in container.devices.items():
            assert all(0 <= shares.of_devices[device][place] <= sizes.get(place, 0) for place in [*sizes, NEAR])
    claimed_kinds: list[Sizes] = [
        {
            place: size
            for place, size in used.items()
            if any(place.kind == other.kind for own in gives.values() for other in own)
        }
        for _, used, gives in found
    ]
    assert total([*shares.of_devices.values(), *shares.beyond.values()]) == total(claimed_kinds)


@given(containers())
def test_a_container_uses_nothing_beyond_where_its_claims_have_more(found: list[Using]) -> None:
    shares = share_out(found)
    for container in found:
        for place in shares.beyond[container.container_id]:
            assert all(
                shares.of_devices[device].get(place, 0) == sizes.get(place, 0)
                for device, sizes in container.devices.items()
            )


def test_use_beyond_a_claim_on_one_node_is_no_use_of_the_claim_on_another() -> None:
    gives = {"a": {NEAR: 512 * MI, FAR: 512 * MI}}
    shares = share_out([Using("c", {NEAR: GI, FAR: 0}, gives)])
    assert shares.of_devices["a"] == {NEAR: 512 * MI, FAR: 0}
    assert shares.beyond["c"] == {NEAR: 512 * MI}


def test_containers_that_share_pages_use_the_claim_together() -> None:
    gives = {"a": {NEAR_PAGES: 16 * MI}}
    shares = share_out([Using("c1", {NEAR_PAGES: 4 * MI}, gives), Using("c2", {NEAR_PAGES: 14 * MI}, gives)])
    assert shares.of_devices["a"] == {NEAR_PAGES: 16 * MI}
    assert shares.beyond == {"c1": {}, "c2": {NEAR_PAGES: 2 * MI}}


def test_kinds_that_a_container_has_not_claimed_are_not_counted() -> None:
    shares = share_out([Using("c", {NEAR: GI, NEAR_PAGES: 4 * MI}, {"a": {NEAR_PAGES: 4 * MI}})])
    assert shares.beyond == {"c": {}}


def test_pages_whose_nodes_the_kernel_does_not_count_are_on_those_of_the_claims() -> None:
    assert spread({2 * MI: 6 * MI}, {NEAR: GI, NEAR_PAGES: 8 * MI}) == {NEAR_PAGES: 6 * MI}
    assert spread({2 * MI: 6 * MI}, {NEAR_PAGES: 8 * MI, FAR_PAGES: 4 * MI}) == {NEAR_PAGES: 4 * MI, FAR_PAGES: 2 * MI}
    assert spread({2 * MI: 6 * MI}, {NEAR: GI}) == {}


@given(st.integers(0, 99), st.lists(st.integers(0, 40), max_size=4))
def test_pages_are_spread_over_claims_completely_and_never_beyond_them(used: int, claims: list[int]) -> None:
    claimed = {Place(numa, PAGES): count * 2 * MI for numa, count in enumerate(claims)}
    found = spread({2 * MI: used * 2 * MI}, claimed)
    assert all(found[place] <= claimed[place] and found[place] % (2 * MI) == 0 for place in claimed)
    assert sum(found.values()) == min(used, sum(claims)) * 2 * MI


def test_pages_of_the_pods_own_spec_are_not_beyond_a_claim() -> None:
    beyond = {NEAR_PAGES: 4 * MI, FAR_PAGES: 2 * MI}
    assert without_own_pages(beyond, {2 * MI: 6 * MI}) == {}
    assert without_own_pages(beyond, {2 * MI: 4 * MI}) == beyond


def test_small_amounts_of_ordinary_memory_are_left_out_and_no_page_is() -> None:
    assert without_own_pages({NEAR: 15 * MI, FAR: 16 * MI, NEAR_PAGES: 2 * MI}, {}) == {
        FAR: 16 * MI,
        NEAR_PAGES: 2 * MI,
    }


def test_a_small_change_of_what_is_used_is_not_shown() -> None:
    promised = {NEAR: 160 * MI}
    assert steadily({NEAR: 100 * MI}, {NEAR: 110 * MI}, promised) == {NEAR: 100 * MI}
    assert steadily({NEAR: 100 * MI}, {NEAR: 111 * MI}, promised) == {NEAR: 111 * MI}
    assert steadily({}, {NEAR: 1}, promised) == {NEAR: 1}


def test_that_a_claim_is_not_used_any_more_or_used_at_all_is_shown_at_once() -> None:
    promised = {NEAR: 160 * MI}
    assert steadily({NEAR: 1}, {NEAR: 0}, promised) == {NEAR: 0}
    assert steadily({NEAR: 0}, {NEAR: 1}, promised) == {NEAR: 1}
    assert steadily({NEAR: 1}, {}, promised) == {}

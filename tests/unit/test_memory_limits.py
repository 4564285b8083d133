"""The limits of containers and pods that follow from claims of memory and hugepages."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.memory.existing import in_force, late, permitted
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.limits import memory_limits, page_limits, pages_in
from dracpu_agent.memory.pods import PodPages
from dracpu_agent.memory.system import reserved_for_system

KI, MI, GI = 1024, 1024**2, 1024**3
SMALL, LARGE = 2 * MI, GI

sizes_of_pages = st.dictionaries(
    st.sampled_from([SMALL, LARGE, 64 * KI]), st.integers(0, 100).map(lambda count: count * GI)
)


# ---- containers


def test_a_container_is_bound_to_its_nodes_and_limited_to_the_sum_of_its_claims() -> None:
    sizes = {Place(0, MEMORY): 512 * MI, Place(1, MEMORY): 256 * MI}
    assert memory_limits(sizes, None, {0, 1}) == {"memory.max": str(768 * MI), "cpuset.mems": "0,1"}


def test_the_limit_of_the_spec_holds_where_it_is_smaller() -> None:
    sizes = {Place(0, MEMORY): 512 * MI}
    assert memory_limits(sizes, 128 * MI, {0})["memory.max"] == str(128 * MI)
    assert memory_limits(sizes, GI, {0})["memory.max"] == str(512 * MI)


def test_a_container_with_pages_and_no_memory_is_not_bound() -> None:
    assert memory_limits({Place(0, Kind(SMALL)): 8 * MI}, None, {0, 1}) == {}


def test_a_container_whose_memory_is_partly_gone_is_limited_and_not_bound() -> None:
    sizes = {Place(0, MEMORY): 512 * MI, Place(2, MEMORY): 512 * MI}
    assert memory_limits(sizes, None, {0, 1}) == {"memory.max": str(GI)}


def test_a_container_is_never_bound_to_nodes_without_memory() -> None:
    assert memory_limits({Place(2, MEMORY): 512 * MI}, None, {0, 1}) == {"memory.max": str(512 * MI)}


@given(
    st.dictionaries(st.tuples(st.integers(0, 3), st.booleans()), st.integers(1, 64).map(lambda count: count * MI)),
    st.none() | st.integers(1, 128).map(lambda count: count * MI),
    st.frozensets(st.integers(0, 3)),
)
def test_no_container_is_bound_without_a_limit(
    parts: dict[tuple[int, bool], int], spec_limit: int | None, with_memory: frozenset[int]
) -> None:
    sizes = {Place(numa, Kind(SMALL) if huge else MEMORY): size for (numa, huge), size in parts.items()}
    limits = memory_limits(sizes, spec_limit, with_memory)
    assert "cpuset.mems" not in limits or "memory.max" in limits
    if "cpuset.mems" in limits:
        bound = {int(numa) for numa in limits["cpuset.mems"].split(",")}
        assert bound <= with_memory
        assert bound == {place.numa for place in sizes if place.kind == MEMORY}
    if "memory.max" in limits:
        assert int(limits["memory.max"]) <= sum(size for place, size in sizes.items() if place.kind == MEMORY)
        assert spec_limit is None or int(limits["memory.max"]) <= spec_limit


MAX, MEMS, PAGES = "memory.max", "cpuset.mems", "hugetlb.2MB.max"


def test_a_container_that_has_its_limits_is_sent_them_again() -> None:
    wanted = {MAX: str(GI), MEMS: "0,1", PAGES: "0"}
    assert permitted(wanted, {**wanted, MEMS: "0-1"}, started=True) == wanted


def test_a_container_that_runs_without_limits_is_sent_none() -> None:
    assert permitted({MAX: str(GI), MEMS: "0", PAGES: "0"}, {MEMS: "0"}, started=True) == {}
    assert late({MAX: str(GI), MEMS: "0", PAGES: "0"}, {}) == {MAX: str(GI), MEMS: "0"}


def test_a_container_that_is_not_started_is_sent_all_but_limits_of_pages() -> None:
    wanted = {MAX: str(GI), MEMS: "0", PAGES: str(MI)}
    assert permitted(wanted, {}, started=False) == {MAX: str(GI), MEMS: "0"}
    assert permitted(wanted, {PAGES: "0"}, started=False)[PAGES] == "0"


def test_a_binding_stays_as_it_is() -> None:
    assert permitted({MAX: str(GI), MEMS: "0"}, {MAX: str(GI), MEMS: "0-1"}, started=True)[MEMS] == "0-1"
    assert late({MAX: str(GI), MEMS: "0"}, {MAX: str(GI), MEMS: "0-1"}) == {MEMS: "0"}


files = st.fixed_dictionaries(
    {},
    optional={
        MAX: st.integers(1, 64).map(lambda count: str(count * MI)) | st.just("max"),
        MEMS: st.sampled_from(["0", "1", "0,1"]),
        PAGES: st.integers(0, 4).map(lambda count: str(count * SMALL)),
    },
)


@given(files, files)
def test_no_container_that_runs_is_limited_below_what_it_has_or_moved(
    wanted: dict[str, str], recorded: dict[str, str]
) -> None:
    sent = permitted(wanted, recorded, started=True)
    assert sent.keys() <= wanted.keys() | {MEMS}
    if MAX in sent:
        assert recorded[MAX] != "max" or sent[MAX] == "max"
        assert sent[MAX] == "max" or recorded[MAX] == "max" or int(sent[MAX]) >= int(recorded[MAX])
    if MEMS in sent:
        assert (sent[MEMS], MAX in sent) == (recorded[MEMS], True)
    if PAGES in sent:
        assert sent[PAGES] == recorded[PAGES]
    assert permitted(wanted, {**recorded, **sent}, started=True) == sent


def test_the_files_of_a_cgroup_are_compared_as_the_kernel_shows_them() -> None:
    wanted = {MAX: str(GI + 5), MEMS: "0,1", PAGES: "0"}
    assert in_force(wanted, {MAX: str(GI), MEMS: "0-1", PAGES: "0", "another": "file"})
    for file, other in ((MAX, "max"), (MAX, str(GI - MI)), (MAX, str(2 * GI)), (MEMS, ""), (MEMS, "0"), (PAGES, "max")):
        assert not in_force(wanted, {MAX: str(GI), MEMS: "0-1", PAGES: "0", file: other})
    assert not in_force(wanted, {MAX: str(GI), MEMS: "0-1"})


@pytest.mark.parametrize(
    ("page", "name"), [(SMALL, "2MB"), (LARGE, "1GB"), (64 * KI, "64KB"), (512 * MI, "512MB"), (16 * GI, "16GB")]
)
def test_pages_are_limited_in_use_and_in_reservation(page: int, name: str) -> None:
    assert page_limits({page: 3 * page}) == {
        f"hugetlb.{name}.max": str(3 * page),
        f"hugetlb.{name}.rsvd.max": str(3 * page),
    }


def test_pages_of_a_size_are_added_up_over_numa_nodes() -> None:
    sizes = {
        Place(0, Kind(SMALL)): 8 * MI,
        Place(1, Kind(SMALL)): 4 * MI,
        Place(1, Kind(LARGE)): GI,
        Place(0, MEMORY): GI,
    }
    assert pages_in(sizes) == {SMALL: 12 * MI, LARGE: GI}


# ---- pods


@given(sizes_of_pages, sizes_of_pages)
def test_the_limits_of_a_pod_are_what_its_spec_asks_for_and_its_claims(
    own: dict[int, int], claimed: dict[int, int]
) -> None:
    pods = PodPages()
    pods.set_claims({"pod": claimed})
    pods.learn("pod", own)
    assert pods.limits("pod") == {page: size + claimed.get(page, 0) for page, size in own.items()}
    pods.set_claims({})
    assert pods.limits("pod") == own, "a claim that has ended leaves what the spec asks for"


@given(sizes_of_pages, sizes_of_pages)
def test_what_specs_ask_for_is_kept_over_a_restart(own: dict[int, int], claimed: dict[int, int]) -> None:
    pods, again = PodPages(), PodPages()
    pods.learn("pod", own)
    again.restore(json.loads(json.dumps(pods.state())))
    again.set_claims({"pod": claimed})
    assert again.own("pod") == own
    assert again.known == {"pod"}


@given(sizes_of_pages, sizes_of_pages)
def test_claims_are_not_added_twice_when_the_record_of_pods_is_lost(
    own: dict[int, int], claimed: dict[int, int]
) -> None:
    pods, again = PodPages(), PodPages()
    pods.set_claims({"pod": claimed})
    pods.learn("pod", own)
    again.set_claims({"pod": claimed})
    again.learn("pod", pods.limits("pod"), with_claims=True)
    assert again.limits("pod") == pods.limits("pod")


@pytest.mark.parametrize(
    "state", [None, [], {"pod": 3}, {"pod": {"memory": 5, "hugepages_2Mi": "x", "y": 1}}, {"pod": {3: 4}}]
)
def test_a_record_of_pods_that_cannot_be_read_limits_nothing(state: object) -> None:
    pods = PodPages()
    pods.restore(state)
    assert pods.limits("pod") == {}


# ---- the kubelet


def test_what_the_kubelet_keeps_is_neither_allocatable_nor_hugepages() -> None:
    node = {
        "status": {
            "capacity": {"memory": "6144Mi", "hugepages-2Mi": "256Mi", "hugepages-1Gi": "1Gi", "cpu": "8"},
            "allocatable": {"memory": "4764Mi", "hugepages-2Mi": "256Mi", "hugepages-1Gi": "1Gi"},
        }
    }
    assert reserved_for_system(node) == 100 * MI


@pytest.mark.parametrize(
    "node", [{}, {"status": {}}, {"status": {"capacity": {"memory": "1Gi"}}}, {"status": {"capacity": {"memory": "x"}}}]
)
def test_a_node_without_memory_does_not_say_what_the_kubelet_keeps(node: dict[str, object]) -> None:
    assert reserved_for_system(node) is None


def test_pages_that_the_kubelet_has_not_noticed_do_not_count_twice() -> None:
    node = {"status": {"capacity": {"memory": "1Gi", "hugepages-2Mi": "128Mi"}, "allocatable": {"memory": "1000Mi"}}}
    assert reserved_for_system(node) == 0

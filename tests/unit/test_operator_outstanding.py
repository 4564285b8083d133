"""Claims that are allocated on devices which a node is about to replace."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_api.settings import GroupBy, Mode, OutstandingClaim, Settings
from dracpu_operator.decide.outstanding import AllocatedClaims, outstanding

ALL = [Settings(mode=Mode.INDIVIDUAL)] + [Settings(group_by=group) for group in GroupBy]


def claim(name: str, *results: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
    metadata = {"uid": f"uid-{name}", "name": name, "namespace": namespace}
    status = {
        "allocation": {"devices": {"results": [{"driver": "dra.cpu", "pool": "n1", **result} for result in results]}}
    }
    return {"metadata": metadata, "status": status}


def found_in(claims: list[dict[str, Any]]) -> dict[str, tuple[OutstandingClaim, ...]]:
    found = AllocatedClaims()
    for raw in claims:
        found.store(raw)
    return all_of(found)


def all_of(claims: AllocatedClaims) -> dict[str, tuple[OutstandingClaim, ...]]:
    return {node: claims.of(node) for node in ("n1", "n2") if claims.of(node)}


def share(cpus: str, device: str = "cpudevnuma000", **others: Any) -> dict[str, Any]:
    return {"device": device, "consumedCapacity": {"dra.cpu/cpu": cpus}, **others}


def test_claims_are_found_by_the_node_of_each_device() -> None:
    listed = [
        claim("both", share("2"), share("3", pool="n2"), {"device": "eth0", "driver": "dra.net"}),
        claim("cpus", {"device": "cpudev001"}, {"device": "cpudev002"}),
        claim("watcher", share("4", adminAccess=True)),
        claim("gone"),
        {"metadata": {"uid": "u", "name": "pending", "namespace": "default"}},
    ]
    assert found_in(listed) == {
        "n1": (
            OutstandingClaim("uid-both", "default", "both", (("cpudevnuma000", 2),)),
            OutstandingClaim("uid-cpus", "default", "cpus", (("cpudev001", 1), ("cpudev002", 1))),
        ),
        "n2": (OutstandingClaim("uid-both", "default", "both", (("cpudevnuma000", 3),)),),
    }


@pytest.mark.parametrize(
    ("amount", "cpus"), [("2", 2), ("1k", 1000), ("1Ki", 1024), ("500m", None), ("0", None), ("", None)]
)
def test_an_amount_that_is_not_whole_number_is_ignored(amount: str, cpus: int | None) -> None:
    found = found_in([claim("c", share(amount))])
    assert found == ({"n1": (OutstandingClaim("uid-c", "default", "c", (("cpudevnuma000", cpus),)),)} if cpus else {})


GROUPED, SINGLE, WHOLE, LATER = found_in(
    [
        claim("a", share("2")),
        claim("b", {"device": "cpudev001"}),
        claim("c", share("1", "cpudevmachine")),
        claim("d", share("3")),
    ]
)["n1"]


def test_claims_on_published_devices_are_not_listed() -> None:
    assert outstanding([GROUPED, LATER], Settings()) == ()
    assert outstanding([SINGLE], Settings(mode=Mode.INDIVIDUAL)) == ()
    assert outstanding([], Settings()) == ()


def test_a_claim_on_former_devices_is_listed_with_all_claims_of_the_node() -> None:
    assert outstanding([GROUPED, SINGLE, WHOLE], Settings()) == (GROUPED, SINGLE, WHOLE)


def test_later_claims_on_published_devices_are_not_added_and_ended_claims_are_removed() -> None:
    listed = (GROUPED, SINGLE, WHOLE)
    assert outstanding([GROUPED, SINGLE, WHOLE, LATER], Settings(), listed) == listed
    assert outstanding([SINGLE, WHOLE, LATER], Settings(), listed) == (SINGLE, WHOLE)
    assert outstanding([GROUPED, LATER], Settings(), listed) == ()


def test_another_claim_on_former_devices_adds_all_claims_of_the_node() -> None:
    assert outstanding([GROUPED, SINGLE, WHOLE, LATER], Settings(), (GROUPED, SINGLE)) == (
        GROUPED,
        SINGLE,
        WHOLE,
        LATER,
    )


def test_the_nodes_of_each_change_are_reported() -> None:
    claims = AllocatedClaims()
    assert claims.store(claim("c", share("2"))) == {"n1"}
    assert claims.store(claim("c", share("2"))) == set(), "another field has changed"
    assert claims.store(claim("c", share("3"))) == {"n1"}
    assert claims.store(claim("c", share("3", pool="n2"))) == {"n1", "n2"}
    assert (claims.of("n1"), len(claims.of("n2"))) == ((), 1)
    assert claims.store({"metadata": claim("c")["metadata"]}) == {"n2"}
    assert claims.remove("uid-c") == set()
    claims.store(claim("d", share("1"), share("1", pool="n2")))
    assert claims.remove("uid-d") == {"n1", "n2"}
    assert (len(claims), all_of(claims)) == (0, {})


def test_claims_that_are_gone_take_no_memory() -> None:
    """Claims are followed for months when one of them stays outstanding."""
    claims = AllocatedClaims()

    def come_and_go(first: int, last: int) -> int:
        for number in range(first, last):
            claims.store(claim(f"c{number}", {"device": f"cpudev{number}"}, {"device": f"cpudev{number + 1}"}))
            claims.remove(f"uid-c{number}")
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = come_and_go(0, 20_000)
        assert come_and_go(20_000, 60_000) < before + 5_000_000
    finally:
        tracemalloc.stop()


def test_claims_that_a_complete_list_lacks_are_removed() -> None:
    claims = AllocatedClaims()
    for name in "abc":
        claims.store(claim(name, share("1", pool="n2" if name == "c" else "n1")))
    assert claims.keep({"uid-b", "uid-of-another"}) == {"n1", "n2"}
    assert [record.name for record in claims.of("n1")] == ["b"]


EVENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["n1", "n2", "both", "free", "gone"]), st.integers(1, 3)),
    max_size=30,
)


@given(EVENTS)
def test_after_any_events_the_claims_are_those_of_a_new_list(events: list[tuple[str, str, int]]) -> None:
    claims, present = AllocatedClaims(), dict[str, dict[str, Any]]()
    for name, where, cpus in events:
        before = all_of(claims)
        if where == "gone":
            present.pop(name, None)
            changed = claims.remove(f"uid-{name}")
        else:
            pools = {"both": ["n1", "n2"], "free": []}.get(where, [where])
            present[name] = claim(name, *(share(str(cpus), pool=pool) for pool in pools))
            changed = claims.store(present[name])
        after = all_of(claims)
        assert changed == {node for node in ("n1", "n2") if before.get(node) != after.get(node)}
    assert all_of(claims) == found_in(list(present.values()))


@given(st.permutations([claim(name, share("1")) for name in "abcd"]))
def test_the_order_of_claims_does_not_matter(listed) -> None:
    assert found_in(listed) == found_in(sorted(listed, key=lambda raw: raw["metadata"]["name"]))

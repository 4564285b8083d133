"""Claims that are allocated on devices which a node is about to replace."""

import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_api.device_names import belongs_to, is_published
from dracpu_api.settings import (
    GroupBy,
    MemorySettings,
    Mode,
    OutstandingClaim,
    OutstandingDevice,
    Publish,
    Settings,
)
from dracpu_operator.decide.outstanding import AllocatedClaims, outstanding

CPUS = [Settings(mode=Mode.INDIVIDUAL)] + [Settings(group_by=group) for group in GroupBy]
MEMORY = [MemorySettings(), MemorySettings(enabled=True), MemorySettings(enabled=True, publish=Publish.WITH_CPUS)]
ALL = [replace(cpus, memory=memory) for cpus in CPUS for memory in MEMORY]
MI = 1024**2


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


def memory(size: str, device: str = "memory-numa000", **others: Any) -> dict[str, Any]:
    return {"driver": "dra.memory", "device": device, "consumedCapacity": {"size": size}, **others}


def with_cpus(cpus: str, **amounts: str) -> dict[str, Any]:
    """A share of a NUMA node's CPUs and memory."""
    consumed = {"cpu": cpus, **amounts}
    return {"device": "cpudevnuma000", "consumedCapacity": {f"dra.cpu/{name}": size for name, size in consumed.items()}}


def of_memory(device: str, kind: str, size: int) -> OutstandingDevice:
    return OutstandingDevice(device, 0, "dra.memory", ((kind, size),))


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
            OutstandingClaim("uid-both", "default", "both", (OutstandingDevice("cpudevnuma000", 2),)),
            OutstandingClaim(
                "uid-cpus", "default", "cpus", (OutstandingDevice("cpudev001", 1), OutstandingDevice("cpudev002", 1))
            ),
        ),
        "n2": (OutstandingClaim("uid-both", "default", "both", (OutstandingDevice("cpudevnuma000", 3),)),),
    }


@pytest.mark.parametrize(
    ("amount", "cpus"), [("2", 2), ("1k", 1000), ("1Ki", 1024), ("500m", None), ("0", None), ("", None)]
)
def test_an_amount_that_is_not_whole_number_is_ignored(amount: str, cpus: int | None) -> None:
    found = found_in([claim("c", share(amount))])
    device = OutstandingDevice("cpudevnuma000", cpus or 0)
    assert found == ({"n1": (OutstandingClaim("uid-c", "default", "c", (device,)),)} if cpus else {})


def test_memory_of_claims_is_found_on_devices_of_its_own_and_beside_cpus() -> None:
    listed = [
        claim("both", share("2"), memory("512Mi"), memory("4Mi", "hugepages-2mi-numa001")),
        claim("memory", memory("1Gi", "hugepages-1gi-numa000"), memory("1Gi", "memory-numa012", pool="n2")),
        claim("one", with_cpus("2", memory="64Mi", hugepages_2Mi="0", hugepages_1Gi="1Gi")),
        claim("watcher", memory("1Gi", adminAccess=True)),
    ]
    assert {node: [found.devices for found in claims] for node, claims in found_in(listed).items()} == {
        "n1": [
            (
                OutstandingDevice("cpudevnuma000", 2),
                of_memory("memory-numa000", "memory", 512 * MI),
                of_memory("hugepages-2mi-numa001", "hugepages_2Mi", 4 * MI),
            ),
            (of_memory("hugepages-1gi-numa000", "hugepages_1Gi", 1024 * MI),),
            (OutstandingDevice("cpudevnuma000", 2, amounts=(("hugepages_1Gi", 1024 * MI), ("memory", 64 * MI))),),
        ],
        "n2": [(of_memory("memory-numa012", "memory", 1024 * MI),)],
    }


@pytest.mark.parametrize("size", ["0", "", "500m", "much", "1Pi", "9Ei"])
def test_an_amount_of_memory_that_every_agent_refuses_is_ignored(size: str) -> None:
    assert found_in([claim("c", memory(size))]) == {}
    ((found,),) = found_in([claim("c", with_cpus("2", memory=size))]).values()
    assert found.devices == (OutstandingDevice("cpudevnuma000", 2),)


def test_devices_of_another_driver_with_the_same_name_are_ignored() -> None:
    """They are named at random: a cluster may have this driver while it does not use ours for memory."""
    assert found_in([claim("c", memory("1Gi", "memory-x1y2z3"), memory("1Gi", "hugepages-2mi-numa01"))]) == {}


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


ONLY_MEMORY, ALSO_MEMORY, BESIDE_CPUS = found_in(
    [
        claim("e", memory("1Gi")),
        claim("f", share("2"), memory("1Gi")),
        claim("g", with_cpus("2", memory="1Gi")),
    ]
)["n1"]
OFF, DEVICES, WITH_CPUS = (Settings(memory=settings) for settings in MEMORY)


def test_claims_of_memory_are_listed_when_it_is_published_otherwise_or_no_more() -> None:
    claims = [GROUPED, ONLY_MEMORY, ALSO_MEMORY, BESIDE_CPUS]
    assert outstanding(claims, DEVICES) == (BESIDE_CPUS,)
    assert outstanding(claims, WITH_CPUS) == (ONLY_MEMORY, ALSO_MEMORY)
    assert outstanding(claims, OFF) == (ONLY_MEMORY, ALSO_MEMORY, BESIDE_CPUS)
    assert outstanding(claims, replace(WITH_CPUS, group_by=GroupBy.SOCKET)) == (GROUPED, ALSO_MEMORY, BESIDE_CPUS)


def test_claims_of_memory_alone_are_not_listed_when_only_the_devices_of_cpus_change() -> None:
    """Schedulers count them, and no CPUs are chosen among them."""
    assert outstanding([GROUPED, ONLY_MEMORY, SINGLE], DEVICES) == (GROUPED, SINGLE)


def test_claims_that_were_listed_for_the_cpus_of_another_are_removed_when_only_memory_is_left_to_keep() -> None:
    listed = (GROUPED, SINGLE, ONLY_MEMORY)
    assert outstanding(listed, OFF, listed) == listed
    assert outstanding([GROUPED, ONLY_MEMORY], OFF, listed) == (ONLY_MEMORY,)


CLAIMS = st.lists(
    st.lists(
        st.sampled_from(
            [
                share("2"),
                share("1", "cpudevsocket000"),
                {"device": "cpudev003"},
                with_cpus("1", memory="2Mi"),
                memory("2Mi"),
                memory("4Mi", "hugepages-2mi-numa001"),
            ]
        ),
        min_size=1,
        max_size=3,
    ),
    max_size=6,
)


def named(claims: list[list[dict[str, Any]]]) -> tuple[OutstandingClaim, ...]:
    return found_in([claim(f"c{number}", *results) for number, results in enumerate(claims)]).get("n1", ())


def has_memory(found: OutstandingClaim) -> bool:
    return any(device.amounts for device in found.devices)


def uids(claims: Iterable[OutstandingClaim]) -> set[str]:
    return {found.uid for found in claims}


@given(CLAIMS, st.sampled_from(ALL), st.sets(st.integers(0, 5)))
def test_a_list_has_every_claim_that_schedulers_do_not_count(claims, settings: Settings, former: set[int]) -> None:
    present = named(claims)
    before = [found for number, found in enumerate(present) if number in former]
    listed = outstanding(present, settings, before)
    uncounted = [c for c in present if not all(is_published(device, settings) for device in c.devices)]
    assert uids(uncounted) <= uids(listed)
    assert outstanding(present, settings, listed) == listed, "another look changes nothing"
    if not uncounted:
        assert listed == ()


@given(CLAIMS, st.sampled_from(ALL), st.sets(st.integers(0, 5)))
def test_claims_without_memory_are_listed_as_before_there_was_memory(claims, settings, former: set[int]) -> None:
    present = tuple(found for found in named(claims) if not has_memory(found))
    known = {f"uid-c{number}" for number in former}
    foreign = uids(c for c in present if not all(belongs_to(device.name, settings) for device in c.devices))
    listed = outstanding(present, settings, [found for found in present if found.uid in known])
    if foreign - known:
        assert listed == present
    else:
        assert listed == (tuple(found for found in present if found.uid in known) if foreign else ())


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
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["n1", "n2", "both", "free", "gone"]),
        st.integers(1, 3),
        st.sampled_from([share, lambda size, pool: memory(f"{size}Gi", pool=pool)]),
    ),
    max_size=30,
)


@given(EVENTS)
def test_after_any_events_the_claims_are_those_of_a_new_list(events: list[tuple[str, str, int, Any]]) -> None:
    claims, present = AllocatedClaims(), dict[str, dict[str, Any]]()
    for name, where, amount, result in events:
        before = all_of(claims)
        if where == "gone":
            present.pop(name, None)
            changed = claims.remove(f"uid-{name}")
        else:
            pools = {"both": ["n1", "n2"], "free": []}.get(where, [where])
            present[name] = claim(name, *(result(str(amount), pool=pool) for pool in pools))
            changed = claims.store(present[name])
        after = all_of(claims)
        assert changed == {node for node in ("n1", "n2") if before.get(node) != after.get(node)}
    assert all_of(claims) == found_in(list(present.values()))


@given(st.permutations([claim(name, share("1")) for name in "abcd"]))
def test_the_order_of_claims_does_not_matter(listed) -> None:
    assert found_in(listed) == found_in(sorted(listed, key=lambda raw: raw["metadata"]["name"]))

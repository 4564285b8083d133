"""Claims that are allocated for devices which will not be there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_api.settings import GroupBy, Mode, OutstandingClaim, Settings
from dracpu_operator.decide.outstanding import AllocatedClaims, outstanding

ALL = [Settings(mode=Mode.INDIVIDUAL)] + [Settings(group_by=group) for group in GroupBy]


def claim(name: str, *results: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
    metadata = {"uid": f"uid-{name}", "name": name, "namespace": namespace}
    status = {"allocation": {"devices": {"results": [{"driver": "dra.cpu", "pool": "n1", **one} for one in results]}}}
    return {"metadata": metadata, "status": status}


def found_in(claims: list[dict[str, Any]], *nodes: str) -> dict[str, tuple[OutstandingClaim, ...]]:
    found = AllocatedClaims(nodes or ("n1", "n2"))
    for one in claims:
        found.add(one)
    return found.by_node()


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
    assert found_in(listed, "n2").keys() == {"n2"}
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
def test_amounts_are_whole_cpus_or_hold_nothing(amount: str, cpus: int | None) -> None:
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


def test_shares_of_devices_that_stay_are_the_schedulers_to_count() -> None:
    assert outstanding([GROUPED, LATER], Settings()) == ()
    assert outstanding([SINGLE], Settings(mode=Mode.INDIVIDUAL)) == ()
    assert outstanding([], Settings()) == ()


def test_what_a_claim_of_former_devices_has_to_spare_is_listed_with_it() -> None:
    assert outstanding([GROUPED, SINGLE, WHOLE], Settings()) == (GROUPED, SINGLE, WHOLE)


def test_claims_of_present_devices_that_come_later_are_no_news_but_those_that_end_are() -> None:
    listed = (GROUPED, SINGLE, WHOLE)
    assert outstanding([GROUPED, SINGLE, WHOLE, LATER], Settings(), listed) == listed
    assert outstanding([SINGLE, WHOLE, LATER], Settings(), listed) == (SINGLE, WHOLE)
    assert outstanding([GROUPED, LATER], Settings(), listed) == ()


def test_another_claim_of_former_devices_brings_all_onto_the_list() -> None:
    assert outstanding([GROUPED, SINGLE, WHOLE, LATER], Settings(), (GROUPED, SINGLE)) == (
        GROUPED,
        SINGLE,
        WHOLE,
        LATER,
    )


@given(st.permutations([claim(name, share("1")) for name in "abcd"]))
def test_the_order_of_a_list_changes_nothing(listed) -> None:
    assert found_in(listed) == found_in(sorted(listed, key=lambda one: one["metadata"]["name"]))

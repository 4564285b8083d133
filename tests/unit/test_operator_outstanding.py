"""Claims that are allocated for devices which will not be there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_api import names
from dracpu_api.settings import GroupBy, Mode, OutstandingClaim, Settings
from dracpu_operator.outstanding import claims_by_node, foreign, is_published

ALL = [Settings(mode=Mode.INDIVIDUAL)] + [Settings(group_by=group) for group in GroupBy]


def claim(name: str, *results: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
    metadata = {"uid": f"uid-{name}", "name": name, "namespace": namespace}
    status = {"allocation": {"devices": {"results": [{"driver": "dra.cpu", "pool": "n1", **one} for one in results]}}}
    return {"metadata": metadata, "status": status}


def share(cpus: str, device: str = "cpudevnuma000", **others: Any) -> dict[str, Any]:
    return {"device": device, "consumedCapacity": {"dra.cpu/cpu": cpus}, **others}


@pytest.mark.parametrize("number", [0, 7, 128, 4096])
def test_the_names_of_devices_tell_which_settings_publish_them(number: int) -> None:
    for device, settings in zip(
        [
            names.device_of_cpu(number),
            names.device_of_numa_node(number),
            names.device_of_socket(number),
            names.DEVICE_MACHINE,
        ],
        ALL,
        strict=True,
    ):
        assert [is_published(device, one) for one in ALL] == [one is settings for one in ALL]


def test_group_by_has_no_say_in_individual_mode() -> None:
    assert is_published("cpudev004", Settings(mode=Mode.INDIVIDUAL, group_by=GroupBy.SOCKET))


def test_claims_are_found_by_the_node_of_each_device() -> None:
    listed = [
        claim("both", share("2"), share("3", pool="n2"), {"device": "eth0", "driver": "dra.net"}),
        claim("cpus", {"device": "cpudev001"}, {"device": "cpudev002"}),
        claim("watcher", share("4", adminAccess=True)),
        claim("gone"),
        {"metadata": {"uid": "u", "name": "pending", "namespace": "default"}},
    ]
    found = claims_by_node(listed)
    assert found == {
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
    found = claims_by_node([claim("c", share(amount))])
    assert found == ({"n1": (OutstandingClaim("uid-c", "default", "c", (("cpudevnuma000", cpus),)),)} if cpus else {})


def test_shares_of_devices_that_stay_are_the_schedulers_to_count() -> None:
    found = claims_by_node(
        [claim("a", share("2")), claim("b", {"device": "cpudev001"}), claim("c", share("1", "cpudevmachine"))]
    )
    assert [one.name for one in foreign(found["n1"], Settings())] == ["b", "c"]
    assert [one.name for one in foreign(found["n1"], Settings(mode=Mode.INDIVIDUAL))] == ["a", "c"]


@given(st.permutations([claim(name, share("1")) for name in "abcd"]))
def test_the_order_of_a_list_changes_nothing(listed) -> None:
    assert claims_by_node(listed) == claims_by_node(sorted(listed, key=lambda one: one["metadata"]["name"]))

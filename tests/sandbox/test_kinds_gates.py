"""The API server stores the fields of a ResourceSlice whose feature gates are on, and drops the others."""

from typing import Any

import pytest
from dra_objects import grouped, single, slice_of

from dracpu_sandbox.apiserver.kinds.admission import admit
from dracpu_sandbox.apiserver.kinds.gates import CONSUMABLE_CAPACITY, DEVICE_TAINTS, LIST_ATTRIBUTES, ON_BY_DEFAULT
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.refusal import RefusedError

SLICES = next(kind for kind in Registry().all() if kind.plural == "resourceslices")
ROOT = "resource.kubernetes.io/pcieRoot"
WITH_LISTS = ON_BY_DEFAULT | {LIST_ATTRIBUTES}


def stored(*devices: dict[str, Any], gates: frozenset[str] = WITH_LISTS) -> list[dict[str, Any]]:
    return list(admit(SLICES, slice_of("n1", devices), None, gates=gates)["spec"]["devices"])


def with_list(*values: Any, kind: str = "strings") -> dict[str, Any]:
    return {"name": "a", "attributes": {ROOT: {kind: list(values)}}}


def test_without_consumable_capacity_a_group_becomes_a_device_for_one_claim() -> None:
    group = grouped("cpudevnuma000", 8, {"default": "1", "validRange": {"min": "1", "step": "1"}})
    assert stored(group) == [group]
    (left,) = stored(group, gates=ON_BY_DEFAULT - {CONSUMABLE_CAPACITY})
    assert left == {"name": "cpudevnuma000", "attributes": {}, "capacity": {"dra.cpu/cpu": {"value": "8"}}}


def test_without_the_gate_for_device_taints_taints_are_dropped() -> None:
    tainted = single(1, taints=[{"key": "x", "effect": "NoSchedule"}])
    assert stored(tainted)[0]["taints"]
    assert stored(tainted, gates=ON_BY_DEFAULT - {DEVICE_TAINTS}) == [single(1)]


@pytest.mark.parametrize("device", [with_list("pci0000:00", "pci0000:80"), with_list(0, 1, kind="ints")])
def test_lists_are_accepted_only_while_their_gate_is_on(device: dict[str, Any]) -> None:
    assert stored(device) == [device]
    with pytest.raises(RefusedError, match="exactly one value must be specified"):
        stored(device, gates=ON_BY_DEFAULT)


@pytest.mark.parametrize(
    "device, why",
    [
        (with_list("x" * 65), r"strings\[0\]: Too long"),
        (with_list("1.0.0", "first", kind="versions"), r"versions\[1\]: Invalid value: \"first\": must be .* semver"),
        (with_list(), "exactly one value must be specified"),
    ],
)
def test_each_value_of_a_list_is_checked(device: dict[str, Any], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        stored(device)


def test_a_slice_with_lists_holds_fewer_devices() -> None:
    with pytest.raises(RefusedError, match="must have at most 64 items"):
        stored(*map(single, range(64)), with_list("pci0000:00"))

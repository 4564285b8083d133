"""Devices are rendered as JSON, and compared with the JSON that the API server stored."""

from typing import Any

import pytest

from dracpu_agent.cluster.slices.dropped_fields import dropped
from dracpu_agent.cluster.slices.render import render_device
from dracpu_agent.devices.device import AttributeValue, Capacity, Device, RequestPolicy, Taint
from dracpu_api.cpuset import CpuSet


def device(
    *, policy: RequestPolicy | None = None, value: int = 32, taints: tuple[Taint, ...] = (), **named: AttributeValue
) -> Device:
    capacity = None if policy is None else Capacity("dra.cpu/cpu", value, policy)
    return Device("cpudev000", CpuSet([0]), named, capacity, taints)


def test_a_group_is_shared_and_rounds_amounts_to_its_step() -> None:
    rendered = render_device(device(policy=RequestPolicy(default=2, minimum=2, step=2)))
    assert rendered == {
        "name": "cpudev000",
        "allowMultipleAllocations": True,
        "capacity": {
            "dra.cpu/cpu": {
                "value": "32",
                "requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "2"}},
            }
        },
    }


def test_a_group_of_one_unit_lists_its_only_amount() -> None:
    rendered = render_device(device(policy=RequestPolicy(default=1, valid_values=(1,)), value=1))
    assert rendered["capacity"]["dra.cpu/cpu"]["requestPolicy"] == {"default": "1", "validValues": ["1"]}


def test_attributes_keep_their_types() -> None:
    rendered = render_device(device(smt=True, numa=0, type="standard", roots=("pci0000:00", "pci0000:80")))
    assert rendered["attributes"] == {
        "smt": {"bool": True},
        "numa": {"int": 0},
        "type": {"string": "standard"},
        "roots": {"strings": ["pci0000:00", "pci0000:80"]},
    }


def test_a_taint_without_a_value_lacks_the_field() -> None:
    rendered = render_device(device(taints=(Taint("dra.cpu/settling"), Taint("dra.cpu/offline", "true", "NoExecute"))))
    assert rendered["taints"] == [
        {"key": "dra.cpu/settling", "effect": "NoSchedule"},
        {"key": "dra.cpu/offline", "value": "true", "effect": "NoExecute"},
    ]


def test_empty_fields_are_left_out() -> None:
    assert render_device(device()) == {"name": "cpudev000"}


GROUP = render_device(
    device(policy=RequestPolicy(default=1, minimum=1, step=1), taints=(Taint("dra.cpu/settling"),), numa=0)
)


def without(rendered: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {name: value for name, value in rendered.items() if name not in fields}


def test_the_time_that_the_server_adds_to_a_taint_is_not_a_difference() -> None:
    stored = GROUP | {"taints": [{**GROUP["taints"][0], "timeAdded": "2026-01-01T00:00:00Z"}]}
    assert dropped([GROUP], [stored]) is None


@pytest.mark.parametrize(
    "stored",
    [
        [without(GROUP, "allowMultipleAllocations")],
        [without(GROUP, "capacity")],
        [GROUP | {"capacity": {"dra.cpu/cpu": {"value": "32"}}}],
        [],
    ],
)
def test_a_device_without_its_sharing_fields_has_another_meaning(stored: list[dict[str, Any]]) -> None:
    difference = dropped([GROUP], stored)
    assert difference is not None
    assert difference.changes_meaning
    assert "DRAConsumableCapacity" in difference.message


@pytest.mark.parametrize(
    ("stored", "named"),
    [(without(GROUP, "taints"), "DRADeviceTaints"), (GROUP | {"attributes": {}}, "numa"), (GROUP | {"x": 1}, "x")],
)
def test_other_dropped_fields_are_named_and_do_not_change_the_meaning(stored: dict[str, Any], named: str) -> None:
    difference = dropped([GROUP], [stored])
    assert difference is not None
    assert not difference.changes_meaning
    assert named in difference.message

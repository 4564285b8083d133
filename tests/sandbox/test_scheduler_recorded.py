"""The sandbox's scheduler allocates the same devices as kube-scheduler, and rejects the same claims."""

from typing import Any

import pytest
from dra_allocating import Shop
from dra_objects import claim, device_class, slice_of
from recorded_answers import allocated, lines

from dracpu_sandbox.scheduler.allocator import AllocationError


def answer(shop: Shop, number: int, devices: dict[str, Any]) -> dict[str, Any]:
    try:
        found = shop.allocate({**claim(f"c{number}"), "spec": {"devices": devices}})
    except AllocationError:
        return {"waits": "SchedulerError"}
    return allocated(found[0]) if found else {"waits": "Unschedulable"}


@pytest.mark.parametrize("case", lines("scheduler"), ids=lambda case: case["what"])
def test_a_claim_is_allocated_or_rejected_as_by_kube_scheduler(case: dict[str, Any]) -> None:
    classes = [device_class(name, config=config) for name, config in case["classes"].items()]
    shop = Shop(slice_of("n1", case["devices"]), classes=classes)
    answers = [answer(shop, number, devices) for number, devices in enumerate(case["claims"])]
    assert answers[-1] == case["answer"]

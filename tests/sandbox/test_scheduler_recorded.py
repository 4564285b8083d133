"""The sandbox's scheduler allocates the same devices as kube-scheduler, and rejects the same claims."""

from typing import Any

import pytest
from dra_allocating import Shop
from dra_objects import claim
from recorded_answers import allocated, classes, lines, offered

from dracpu_sandbox.scheduler.allocator import AllocationError


def answer(shop: Shop, number: int, devices: dict[str, Any]) -> dict[str, Any]:
    try:
        found = shop.allocate({**claim(f"c{number}"), "spec": {"devices": devices}})
    except AllocationError:
        return {"waits": "SchedulerError"}
    return allocated(found[0]) if found else {"waits": "Unschedulable"}


@pytest.mark.parametrize("case", lines("scheduler"), ids=lambda case: case["what"])
def test_a_claim_is_allocated_or_rejected_as_by_kube_scheduler(case: dict[str, Any]) -> None:
    shop = Shop(*offered(case, "n1"), classes=classes(case))
    answers = [answer(shop, number, devices) for number, devices in enumerate(case["claims"])]
    assert answers[-1] == case["answer"]

"""Tests controllers and scheduler with a real HTTP server: claims are made for pods, and deleted after them."""

import pytest
from aiohttp import web
from control_plane import control_plane
from dra_objects import claim, device_class, grouped, node, pod, request, slice_of, template

from dracpu_sandbox.controllers import manager
from dracpu_sandbox.controllers.generated import POD_CLAIM_NAME
from dracpu_sandbox.controllers.scheduling import Scheduler
from dracpu_sandbox.resources import CLAIMS, EVENTS, PODS


def scheduler(client):
    return Scheduler(client).run()


@pytest.fixture
async def plane():
    async with control_plane(scheduler, manager.run) as found:
        yield found


CLUSTER = [device_class(), node("n1"), slice_of("n1", [grouped("g", 8)])]


def unallocated(item):
    return "allocation" not in (item.get("status") or {})


async def claim_of(plane, name):
    """Returns the name of the claim that was made for a pod."""
    made = await plane.until(PODS, name, lambda item: (item.get("status") or {}).get("resourceClaimStatuses"))
    return made["status"]["resourceClaimStatuses"][0]["resourceClaimName"]


async def test_a_claim_is_made_from_the_template_and_scheduled(plane) -> None:
    await plane.add(*CLUSTER, template("cpus", request(cpus=2)), pod("p", templates=["cpus"]))
    assert await plane.bound("p") == "n1"
    name = await claim_of(plane, "p")
    made = await plane.client.get(CLAIMS, name, "default")
    assert name.startswith("p-cpus-")
    assert made["metadata"]["annotations"] == {POD_CLAIM_NAME: "cpus"}
    assert made["metadata"]["ownerReferences"][0]["name"] == "p"
    assert made["status"]["reservedFor"][0]["name"] == "p"


async def test_a_missing_template_is_reported_once_and_the_pod_waits(plane) -> None:
    await plane.add(*CLUSTER, pod("p", templates=["cpus"]))
    event = await plane.event("FailedResourceClaimCreation")
    assert event["note"].startswith('PodResourceClaim cpus: resource claim template "cpus": ')
    await plane.add(template("cpus", request(cpus=2)))
    assert await plane.bound("p") == "n1"
    reasons = [event["reason"] for event in await plane.client.list(EVENTS)]
    assert reasons.count("FailedResourceClaimCreation") == 1


async def test_a_claim_is_released_when_its_pod_has_ended_and_another_pod_can_use_it(plane) -> None:
    await plane.add(*CLUSTER, claim("c", request(cpus=8)), pod("p", "c"))
    await plane.bound("p")
    await plane.phase("p", "Succeeded")
    free = await plane.until(CLAIMS, "c", lambda item: unallocated(item) and not item["metadata"].get("finalizers"))
    assert "reservedFor" not in free.get("status", {})
    await plane.add(pod("q", "c"))
    assert await plane.bound("q") == "n1"


async def test_a_generated_claim_is_deleted_with_its_pod(plane) -> None:
    await plane.add(*CLUSTER, template("cpus", request(cpus=8)), pod("p", templates=["cpus"]))
    await plane.bound("p")
    name = await claim_of(plane, "p")
    await plane.client.delete(PODS, "p", "default", grace=0)
    await plane.until_gone(CLAIMS, name)


async def test_a_generated_claim_that_is_deleted_too_early_is_made_again(plane) -> None:
    await plane.add(*CLUSTER, template("cpus", request(cpus=32)), pod("p", templates=["cpus"]))
    first = await claim_of(plane, "p")
    await plane.refused("p", "cannot allocate")
    await plane.client.delete(CLAIMS, first, "default")
    changed = await plane.until(
        PODS, "p", lambda item: item["status"]["resourceClaimStatuses"][0]["resourceClaimName"] != first
    )
    assert len(changed["status"]["resourceClaimStatuses"]) == 1
    await plane.change(slice_of("n1", [grouped("g", 32)]))
    assert await plane.bound("p") == "n1"
    assert len(await plane.client.list(CLAIMS)) == 1


async def test_a_deleted_claim_waits_for_its_pod(plane) -> None:
    await plane.add(*CLUSTER, claim("c", request(cpus=8)), pod("p", "c"))
    await plane.bound("p")
    await plane.client.delete(CLAIMS, "c", "default")
    leaving = await plane.client.get(CLAIMS, "c", "default")
    assert leaving["metadata"]["deletionTimestamp"]
    await plane.client.delete(PODS, "p", "default", grace=0)
    await plane.until_gone(CLAIMS, "c")


async def test_requests_are_retried_after_server_errors() -> None:
    async with control_plane(scheduler, manager.run) as plane:
        failures = 3

        async def fail_at_first(request, proceed):
            nonlocal failures
            if request.plural == "resourceclaims" and request.verb in {"create", "update"} and failures:
                failures -= 1
                body = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "not now"}
                return web.json_response(body, status=500)
            return await proceed()

        await plane.add(*CLUSTER, template("cpus", request(cpus=8)))
        plane.server.around = fail_at_first
        await plane.add(pod("p", templates=["cpus"]))
        assert await plane.bound("p") == "n1"
        assert not failures

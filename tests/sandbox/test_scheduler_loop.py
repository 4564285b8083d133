"""Tests the scheduler with a real HTTP server: it binds pods, allocates claims, and survives failed requests."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from background import background
from control_plane import control_plane
from dra_objects import NUMA, claim, device_class, grouped, node, pod, request, single, slice_of

from dracpu_sandbox.controllers.scheduling import Scheduler
from dracpu_sandbox.resources import CLAIMS, PODS
from dracpu_sandbox.scheduler.claims import FINALIZER


def scheduler(client):
    return Scheduler(client).run()


@pytest.fixture
async def plane():
    async with control_plane(scheduler) as found:
        yield found


ON_NODE_0 = 'device.attributes["resource.kubernetes.io"].numaNode == 0'
CLUSTER = [
    device_class(),
    node("n1"),
    node("n2"),
    slice_of("n1", [grouped("g", 8)]),
    slice_of("n2", [grouped("g", 16)]),
]


def devices_of(item):
    allocation = (item.get("status") or {}).get("allocation") or {}
    return [result["device"] for result in (allocation.get("devices") or {}).get("results") or ()]


async def test_a_pod_and_its_claim_get_a_node_and_devices(plane) -> None:
    await plane.add(*CLUSTER, claim("c", request(cpus=12)), pod("p", "c"))
    assert await plane.bound("p") == "n2"
    given = await plane.client.get(CLAIMS, "c", "default")
    bound = await plane.client.get(PODS, "p", "default")
    assert given["metadata"]["finalizers"] == [FINALIZER]
    assert given["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": bound["metadata"]["uid"]}]
    assert devices_of(given) == ["g"]
    assert given["status"]["allocation"]["devices"]["results"][0]["pool"] == "n2"


def some_memory(name, size, step, numa):
    policy = {"default": step, "validRange": {"min": step, "step": step}}
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "attributes": {NUMA: {"int": numa}},
        "capacity": {"size": {"value": size, "requestPolicy": policy}},
    }


def bytes_of(name, device_class, size, **exactly):
    exact = {"deviceClassName": device_class, "capacity": {"requests": {"size": size}}, **exactly}
    return {"name": name, "exactly": exact}


MEMORY = [
    device_class(),
    device_class("memory", driver="dra.memory"),
    node("n1"),
    slice_of("n1", [grouped(f"cpus-{numa}", 8, None, **{NUMA: numa}) for numa in (0, 1)]),
    slice_of("n1", [some_memory("m-0", "512Mi", "4Ki", 0), some_memory("m-1", "4Gi", "4Ki", 1)], driver="dra.memory"),
]


async def test_cpus_and_memory_of_two_drivers_come_from_one_numa_node(plane) -> None:
    near: dict[str, Any] = {"constraints": [{"matchAttribute": NUMA}]}
    await plane.add(
        *MEMORY, claim("c", request("cpus", cpus=2), bytes_of("memory", "memory", "1e9"), **near), pod("p", "c")
    )
    await plane.bound("p")
    given = await plane.client.get(CLAIMS, "c", "default")
    results = given["status"]["allocation"]["devices"]["results"]
    assert [(result["driver"], result["device"]) for result in results] == [
        ("dra.cpu", "cpus-1"),
        ("dra.memory", "m-1"),
    ]
    assert results[1]["consumedCapacity"] == {"size": "976564Ki"}  # whole pages


async def test_claims_share_the_memory_of_a_numa_node_until_it_is_promised(plane) -> None:
    spread: dict[str, Any] = {"constraints": [{"distinctAttribute": NUMA}]}
    await plane.add(
        *MEMORY,
        claim("both", bytes_of("main", "memory", "256Mi", count=2), **spread),
        claim("rest", bytes_of("main", "memory", str(256 << 20), selectors=[{"cel": {"expression": ON_NODE_0}}])),
        claim("more", bytes_of("main", "memory", "4Ki", selectors=[{"cel": {"expression": ON_NODE_0}}])),
    )
    for name in ("both", "rest", "more"):
        await plane.add(pod(name, name))
        await (plane.refused(name, "cannot") if name == "more" else plane.bound(name))
    both = await plane.client.get(CLAIMS, "both", "default")
    assert devices_of(both) == ["m-0", "m-1"]


async def test_a_pod_that_does_not_fit_gets_a_message_and_is_retried_after_changes(plane) -> None:
    await plane.add(*CLUSTER, claim("c", request(cpus=32)), pod("p", "c"))
    assert await plane.refused("p", "cannot") == "0/2 nodes are available: 2 cannot allocate all claims."
    await plane.change(slice_of("n1", [grouped("g", 32)]))
    assert await plane.bound("p") == "n1"


async def test_events_report_refusals_and_bindings(plane) -> None:
    await plane.add(pod("p"))
    await plane.refused("p", "no nodes available to schedule pods")
    await plane.add(node("n1"))
    await plane.bound("p")

    refused, scheduled = await plane.event("FailedScheduling"), await plane.event("Scheduled")
    assert (refused["type"], refused["note"]) == ("Warning", "no nodes available to schedule pods")
    assert (scheduled["type"], scheduled["note"]) == ("Normal", "Successfully assigned default/p to n1")


async def test_no_cpu_is_allocated_twice_to_many_concurrent_pods(plane) -> None:
    await plane.add(device_class(), *(node(f"n{number}") for number in range(4)))
    await plane.add(*(slice_of(f"n{number}", [single(cpu) for cpu in range(8)]) for number in range(4)))
    names = [f"p{number}" for number in range(32)]
    await asyncio.gather(*(plane.add(claim(name, request()), pod(name, name)) for name in names))
    for name in names:
        await plane.bound(name)
    given = [
        (result["pool"], result["device"])
        for item in await plane.client.list(CLAIMS)
        for result in item["status"]["allocation"]["devices"]["results"]
    ]
    assert len(set(given)) == len(given) == 32


async def test_a_write_is_retried_on_the_current_object_after_a_conflict() -> None:
    async with control_plane(scheduler) as plane:
        refusals = 0

        async def refuse_twice(asked, proceed):
            nonlocal refusals
            if asked.verb == "update" and asked.plural == "resourceclaims" and refusals < 2:
                refusals += 1
                body = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "the object was modified"}
                return web.json_response(body, status=409)
            return await proceed()

        plane.server.around = refuse_twice
        await plane.add(*CLUSTER, claim("c", request(cpus=4)), pod("p", "c"))
        await plane.bound("p")
        assert refusals == 2


async def test_a_lost_answer_to_a_write_does_not_cause_a_double_allocation() -> None:
    async with control_plane(scheduler) as plane:
        lost: list[str] = []

        async def lose_the_first_answer(asked, proceed):
            answer = await proceed()
            if asked.verb == "update" and asked.subresource == "status" and not lost:
                lost.append(asked.name)
                body = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "lost"}
                return web.json_response(body, status=500)
            return answer

        await plane.add(device_class(), node("n1"), slice_of("n1", [single(0), single(1)]))
        plane.server.around = lose_the_first_answer
        await plane.add(claim("a", request()), pod("a", "a"), claim("b", request()), pod("b", "b"))
        await plane.bound("a")
        await plane.bound("b")
        given = [devices_of(item) for item in await plane.client.list(CLAIMS)]
        assert sorted(given) == [["cpudev000"], ["cpudev001"]]
        assert lost


async def test_the_scheduler_continues_after_server_errors() -> None:
    async with control_plane() as plane:
        failures, survived = 12, asyncio.Event()

        async def fail_at_first(asked, proceed):
            nonlocal failures
            if failures and asked.verb in {"list", "watch"}:
                failures -= 1
                body = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "not now"}
                return web.json_response(body, status=500)
            if not failures:
                survived.set()
            return await proceed()

        await plane.add(*CLUSTER, claim("c", request(cpus=4)), pod("p", "c"))
        plane.server.around = fail_at_first
        async with background(Scheduler(plane.client).run()):
            await survived.wait()
            assert await plane.bound("p") == "n1"


async def test_a_pod_is_bound_even_if_events_cannot_be_written() -> None:
    async with control_plane(scheduler) as plane:

        async def lose_events(asked, proceed):
            if asked.plural == "events":
                body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "the namespace is terminating"}
                return web.json_response(body, status=403)
            return await proceed()

        plane.server.around = lose_events
        await plane.add(pod("p"))
        await plane.refused("p")
        await plane.add(node("n1"))
        assert await plane.bound("p") == "n1"


async def test_a_claim_that_a_pod_names_twice_is_allocated_once() -> None:
    async with control_plane(scheduler) as plane:
        writes = []

        async def count(asked, proceed):
            if asked.plural == "resourceclaims" and asked.subresource == "status":
                writes.append(asked.name)
            return await proceed()

        twice = pod("p", "c")
        twice["spec"]["resourceClaims"].append({"name": "again", "resourceClaimName": "c"})
        plane.server.around = count
        await plane.add(*CLUSTER, claim("c", request(cpus=4)), twice)
        await plane.bound("p")
        assert writes == ["c"]

"""Tests that the kubelet prepares and unprepares claims once, and keeps them after a restart."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.kubelet.proto import kubelet_dra_pb2 as dra
from dracpu_sandbox.node.claim_cache import AllocatedClaim, ClaimCache
from dracpu_sandbox.node.plugins import KubeletError, RegisteredPlugin


class Driver:
    """A driver that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error = ""
        self.unpreparing, self.may_unprepare = asyncio.Event(), asyncio.Event()
        self.may_unprepare.set()

    async def prepare(self, *claims: ClaimRef) -> Mapping[str, dra.NodePrepareResourceResponse]:
        self.calls.append("prepare " + " ".join(claim.name for claim in claims))
        return {
            claim.uid: dra.NodePrepareResourceResponse(
                devices=[
                    dra.Device(request_names=[request], device_name="d", cdi_device_ids=[f"{claim.name}-{request}"])
                    for request in ("a", "b")
                ],
                error=self.error,
            )
            for claim in claims
        }

    async def unprepare(self, *claims: ClaimRef) -> Mapping[str, str]:
        self.calls.append("unprepare " + " ".join(claim.name for claim in claims))
        self.unpreparing.set()
        await self.may_unprepare.wait()
        return {claim.uid: self.error for claim in claims}


def claim(name: str, uid: str = "", *drivers: str) -> AllocatedClaim:
    return AllocatedClaim(ClaimRef("default", name, uid or f"uid-{name}"), drivers or ("cpu",))


def cache_of(**drivers: Driver) -> ClaimCache:
    def find(name: str) -> RegisteredPlugin:
        if name not in drivers:
            raise KubeletError(f"DRA driver {name} is not registered")
        return cast(RegisteredPlugin, drivers[name])

    return ClaimCache(find)


def ids(cache: ClaimCache, *arguments: Any) -> list[str]:
    return [cdi_id for held in cache.devices(*arguments) for cdi_id in held.device.cdi_ids]


async def test_the_unprepared_claims_of_a_pod_are_prepared_in_one_call() -> None:
    driver = Driver()
    cache = cache_of(cpu=driver)
    await cache.prepare("pod-1", [claim("x"), claim("y")])
    await cache.prepare("pod-2", [claim("y"), claim("z")])
    assert driver.calls == ["prepare x y", "prepare z"]
    assert ids(cache, "uid-x") == ["x-a", "x-b"]
    assert ids(cache, "uid-x", "b") == ["x-b"]


async def test_each_driver_of_a_claim_is_called() -> None:
    cpu, memory = Driver(), Driver()
    cache = cache_of(cpu=cpu, memory=memory)
    await cache.prepare("pod-1", [claim("x", "", "cpu", "memory")])
    assert (cpu.calls, memory.calls) == (["prepare x"], ["prepare x"])
    assert [held.driver for held in cache.devices("uid-x", "a")] == ["cpu", "memory"]


async def test_a_claim_is_unprepared_after_its_last_pod() -> None:
    driver = Driver()
    cache = cache_of(cpu=driver)
    for pod in ("pod-1", "pod-2"):
        await cache.prepare(pod, [claim("x")])
    await cache.unprepare("pod-1")
    assert driver.calls == ["prepare x"]
    await cache.unprepare("pod-2")
    await cache.unprepare("pod-2")
    assert driver.calls == ["prepare x", "unprepare x"]


async def test_a_pod_cannot_use_a_claim_while_it_is_unprepared() -> None:
    driver = Driver()
    cache = cache_of(cpu=driver)
    await cache.prepare("pod-1", [claim("x")])
    driver.may_unprepare.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(cache.unprepare("pod-1"))
        await driver.unpreparing.wait()
        with pytest.raises(KubeletError, match="ResourceClaim x is being unprepared"):
            await cache.prepare("pod-2", [claim("x")])
        driver.may_unprepare.set()
    await cache.prepare("pod-2", [claim("x")])
    await cache.unprepare("pod-2")
    assert driver.calls == ["prepare x", "unprepare x"] * 2


async def test_a_claim_that_a_pod_names_twice_is_prepared_once() -> None:
    driver = Driver()
    await cache_of(cpu=driver).prepare("pod-1", [claim("x"), claim("x")])
    assert driver.calls == ["prepare x"]


async def test_failed_calls_are_repeated() -> None:
    driver = Driver()
    cache = cache_of(cpu=driver)
    driver.error = "no CPUs"
    with pytest.raises(KubeletError, match="NodePrepareResources failed for ResourceClaim x: no CPUs"):
        await cache.prepare("pod-1", [claim("x")])
    with pytest.raises(KubeletError, match="NodeUnprepareResources failed for ResourceClaim x: no CPUs"):
        await cache.unprepare("pod-1")
    with pytest.raises(KubeletError, match="ResourceClaim x is being unprepared"):
        await cache.prepare("pod-2", [claim("x")])
    driver.error = ""
    await cache.unprepare("pod-1")
    await cache.prepare("pod-2", [claim("x")])
    assert driver.calls == ["prepare x", "unprepare x", "unprepare x", "prepare x"]


async def test_a_claim_waits_until_its_predecessor_of_the_same_name_is_unprepared() -> None:
    cache = cache_of(cpu=Driver())
    await cache.prepare("pod-1", [claim("x", "old")])
    with pytest.raises(KubeletError, match="old ResourceClaim with same name x and different UID old still exists"):
        await cache.prepare("pod-2", [claim("x", "new")])


async def test_claims_are_kept_after_a_restart_but_prepared_again() -> None:
    driver = Driver()
    cache = cache_of(cpu=driver)
    await cache.prepare("pod-1", [claim("x")])
    cache.forget_preparations()
    assert ids(cache, "uid-x", "a") == ["x-a"]
    await cache.prepare("pod-2", [claim("x")])
    await cache.unprepare("pod-1")
    await cache.unprepare("pod-2")
    assert driver.calls == ["prepare x", "prepare x", "unprepare x"]


async def test_preparing_fails_without_the_driver() -> None:
    with pytest.raises(KubeletError, match="DRA driver cpu is not registered"):
        await cache_of().prepare("pod-1", [claim("x")])

"""What the runtime is sent over time, while reports do not come and updates fail; the clock of the tests is virtual."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from nodes import cdi, container, node, request, running, share, uid
from virtual_time import run_in_virtual_time

from dracpu_agent.errors import NotReadyError, PlacementError
from dracpu_agent.placement.container import Container, ContainerUpdate, RuntimeInfo
from dracpu_agent.placement.proof import ClaimKey
from dracpu_agent.work.pinning import REPORT_SECONDS, SETTLE_SECONDS, Pinning
from dracpu_agent.work.retries import FIRST_SECONDS
from dracpu_api.cpuset import CpuSet
from dracpu_api.errors import DriverError

NUMA1 = "cpudevnuma001"


class Runtime:
    """Takes pushes, and notes them with their time."""

    def __init__(self) -> None:
        self.failing = False
        self.pushed: list[tuple[float, ContainerUpdate]] = []

    async def push(self, update: ContainerUpdate) -> None:
        self.pushed.append((asyncio.get_running_loop().time(), update))
        if self.failing:
            raise DriverError("the cgroup cannot be written")

    def updates(self) -> list[ContainerUpdate]:
        return [update for _, update in self.pushed]


async def reads_no_cgroup(_pod_uid: str, _container_id: str) -> CpuSet | None:
    """A machine without a cgroup tree that can be read."""
    return None


class Api:
    """The API server, which is away."""

    def __init__(self) -> None:
        self.reads = 0

    async def learn_consumers(self, claim: ClaimKey) -> None:
        self.reads += 1
        raise NotReadyError("no answer")


async def reads_for_ever(_pod_uid: str, _container_id: str) -> CpuSet | None:
    """A machine whose disk hangs."""
    await asyncio.Event().wait()
    return None


@contextlib.asynccontextmanager
async def pinning_of(
    state, runtime: Runtime, api: Api | None = None, read_cpus=reads_no_cgroup
) -> AsyncIterator[Pinning]:
    pinning = Pinning(state, (api or Api()).learn_consumers, lambda _: None, read_cpus)
    state.on_change(pinning.wake)
    task = asyncio.create_task(pinning.run(runtime))
    try:
        yield pinning
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def seconds_until_settled(pinning: Pinning, state, number: int) -> float:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    await pinning.wait_until_settled(state.claims[uid(number)])
    return loop.time() - begin


def test_claims_do_not_wait_for_ever_for_a_listed_container_that_is_never_started():
    async def test() -> None:
        state, runtime = node(), Runtime()
        state.containers.disconnected()
        async with pinning_of(state, runtime) as pinning:
            pinning.synchronize([replace(container("left"), cpus=CpuSet.parse("2-7"), started=False)])
            pinning.synchronized()
            state.claims.grant(request(1, share(NUMA1, 1)))
            assert await seconds_until_settled(pinning, state, 1) == SETTLE_SECONDS
            await asyncio.sleep(REPORT_SECONDS)
            state.claims.grant(request(2, share(NUMA1, 1)))
            assert await seconds_until_settled(pinning, state, 2) == 0

    run_in_virtual_time(test())


def test_a_resize_that_the_runtime_refuses_again_and_again_does_not_hold_back_updates():
    async def test() -> None:
        state, runtime = node(), Runtime()
        running(state, container("shared"))
        async with pinning_of(state, runtime) as pinning:
            state.claims.grant(request(1, share(NUMA1, 2)))
            pinning.update(container("shared"))
            while not runtime.pushed and asyncio.get_running_loop().time() < 10 * REPORT_SECONDS:
                await asyncio.sleep(10)  # the kubelet repeats the resize; PostUpdate never comes
                pinning.update(container("shared"))
            wanted = CpuSet.parse("2-7") - state.claims[uid(1)].cpus
            assert ContainerUpdate("shared", wanted) in runtime.updates()

    run_in_virtual_time(test())


def test_a_claims_container_does_not_wait_for_ever_for_one_whose_refused_start_the_runtime_does_not_report():
    async def test() -> None:
        state = node()
        state.claims.grant(request(1, share(NUMA1, 2)))
        running(state, container("pinned", cdi(1)))
        async with pinning_of(state, Runtime()) as pinning:
            with pytest.raises(PlacementError, match="late would start on CPUs that are not known"):
                await pinning.start(container("late"))
            with pytest.raises(PlacementError, match="late is being started or changed"):
                await pinning.create(container("second", cdi(1)))
            await asyncio.sleep(REPORT_SECONDS + 1)
            assert (await pinning.create(container("second", cdi(1)))).cpus == state.claims[uid(1)].cpus

    run_in_virtual_time(test())


def test_an_update_that_always_fails_is_sent_less_and_less_often():
    async def test() -> None:
        state, runtime = node(), Runtime()
        runtime.failing = True
        running(state, container("shared"))
        async with pinning_of(state, runtime):
            state.claims.grant(request(1, share(NUMA1, 2)))
            await asyncio.sleep(3600)
            assert len(runtime.pushed) < 150
            runtime.failing, before = False, len(runtime.pushed)
            await asyncio.sleep(60)
            assert len(runtime.pushed) == before + 1, "it is never given up"

    run_in_virtual_time(test())


def test_after_a_failed_update_other_cpus_are_sent_without_that_delay():
    async def test() -> None:
        state, runtime = node(), Runtime()
        runtime.failing = True
        running(state, container("shared"))
        async with pinning_of(state, runtime):
            state.claims.grant(request(1, share(NUMA1, 1)))
            await asyncio.sleep(3600)
            runtime.failing = False
            state.claims.grant(request(2, share(NUMA1, 1)))
            await asyncio.sleep(FIRST_SECONDS + 1)
            held = state.claims[uid(1)].cpus | state.claims[uid(2)].cpus
            assert runtime.updates()[-1] == ContainerUpdate("shared", CpuSet.parse("2-7") - held)

    run_in_virtual_time(test())


def test_claims_that_cannot_be_read_do_not_hold_back_pushes_one_after_the_other():
    async def test() -> None:
        runtime, api = Runtime(), Api()
        info = RuntimeInfo("cri-o", "9.9.9", "v9.0.0", passes_cdi_devices=False, unsolicited_updates=True)
        state = node(runtime=info)
        state.claims.grant(request(1, share(NUMA1, 2)))
        env = f"DRA_CPUSET_{uid(1)}={state.claims[uid(1)].cpus}"
        joined: list[Container] = [container(f"joined-{number}", env=[env]) for number in range(100)]
        async with pinning_of(state, runtime, api) as pinning:
            pinning.synchronize(joined)
            pinning.synchronized()
            await asyncio.sleep(1)
            assert api.reads == 1
            assert len(runtime.pushed) == len(joined)

    run_in_virtual_time(test())


def test_a_cgroup_that_cannot_be_read_in_time_is_unknown():
    async def test() -> None:
        state = node()
        state.claims.grant(request(1, share(NUMA1, 4)))
        running(state, container("pinned", cdi(1)))
        state.containers.disconnected()
        async with pinning_of(state, Runtime(), read_cpus=reads_for_ever) as pinning:
            listed = [container("pinned", cdi(1)), *(container(name) for name in ("young", "late"))]
            pinning.synchronize([replace(known, started=known.name == "pinned") for known in listed])
            pinning.synchronized()
            async with asyncio.timeout(1.0):
                await pinning.start(container("young"))
            state.containers.expire("late")
            async with asyncio.timeout(1.0):
                with pytest.raises(PlacementError, match="late would start on CPUs that are not known"):
                    await pinning.start(container("late"))

    run_in_virtual_time(test())

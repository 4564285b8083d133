"""Tests the simulated runtime with kubelets that end during their calls."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.node.cgroups import CgroupTree
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.programs import FOR_EVER
from dracpu_sandbox.node.ram import Ram
from dracpu_sandbox.node.runtime import SimulatedRuntime


@pytest.fixture
async def runtime(short_path: Path) -> AsyncIterator[SimulatedRuntime]:
    tree = CgroupTree(short_path / "cgroup", Ram(LAB.memory))
    made = SimulatedRuntime(short_path / "nri.sock", short_path / "cdi", lambda: CpuSet.parse("0-3"), tree)
    await made.start()
    yield made
    await made.stop()
    await made.kill_everything()


async def create(runtime: SimulatedRuntime, pod: PodSandbox) -> str:
    return await runtime.create(pod, "main", env=(), cdi_devices=(), program=FOR_EVER)


async def test_a_call_is_completed_after_its_kubelet_has_ended(runtime: SimulatedRuntime) -> None:
    pod = runtime.run_pod("default", "web", "web")
    async with runtime.nri.busy():
        asking = asyncio.create_task(create(runtime, pod))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
    await runtime.complete_calls()
    (made,) = runtime.containers_of("web")
    assert (made.started, made.running) == (False, False)
    await runtime.start_container(made.id)
    await runtime.stop_container(made.id)
    (ended,) = runtime.containers_of("web")
    assert (ended.started, ended.running) == (True, False)


async def test_calls_are_cancelled_when_the_machine_is_switched_off(runtime: SimulatedRuntime) -> None:
    pod = runtime.run_pod("default", "web", "web")
    async with runtime.nri.busy():
        asking = asyncio.create_task(create(runtime, pod))
        await asyncio.sleep(0)
        await runtime.kill_everything()
        await asyncio.wait({asking})
    assert not runtime.containers_of("web")
    assert not runtime.nri.containers


async def test_a_plugin_that_does_not_register_is_disconnected(runtime: SimulatedRuntime) -> None:
    runtime.nri.registration_timeout = 0.05
    reader, writer = await asyncio.open_unix_connection(runtime.nri.socket)
    assert await reader.read() == b""
    assert runtime.nri.lost == ["a plugin did not register in time"]
    writer.close()
    await writer.wait_closed()

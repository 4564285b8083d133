"""Updates that the agent sends outside of hooks."""

import asyncio
from pathlib import Path

import pytest
from recording_handler import SHARED, RecordingHandler, running

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container, ContainerUpdate, Placement
from dracpu_agent.runtime import plugin as plugin_module
from dracpu_agent.runtime.plugin import RuntimeUnavailableError, UpdateFailedError
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime

GROWN = CpuSet(range(8))


async def test_a_push_moves_a_container(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler) as plugin:
        await handler.is_synchronized.wait()
        web = await runtime.create_container(PodSandbox("web"), "app")
        await plugin.push(ContainerUpdate(web, GROWN))
        assert runtime.cpuset_of(web) == "0-7"


async def test_a_push_of_an_unknown_container_succeeds_as_the_runtime_reports_no_error(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s"), running(tmp_path / "s", handler) as plugin:
        await handler.is_synchronized.wait()
        await plugin.push(ContainerUpdate("unknown", GROWN))


async def test_a_failed_push_names_the_container_and_does_not_affect_others(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler) as plugin:
        await handler.is_synchronized.wait()
        bad, ended, good = [await runtime.create_container(PodSandbox(name), "app") for name in ("a", "b", "c")]
        runtime.containerd.failing_updates.add(bad)
        await runtime.stop_container(ended)
        for container_id in (bad, ended):
            with pytest.raises(UpdateFailedError, match=f"{container_id}: NRI update"):
                await plugin.push(ContainerUpdate(container_id, GROWN))
        await plugin.push(ContainerUpdate(good, GROWN))
        assert [runtime.cpuset_of(container_id) for container_id in (bad, good)] == [str(SHARED), "0-7"]


async def test_an_empty_cpuset_is_not_pushed(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s"), running(tmp_path / "s", handler) as plugin:
        await handler.is_synchronized.wait()
        with pytest.raises(PlacementError):
            await plugin.push(ContainerUpdate("web", EMPTY))


async def test_a_push_without_a_runtime_is_an_error(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with running(tmp_path / "s", handler) as plugin:
        with pytest.raises(RuntimeUnavailableError):
            await plugin.push(ContainerUpdate("web", GROWN))
        async with NriRuntime(tmp_path / "s") as runtime:
            await handler.is_synchronized.wait()
            handler.is_disconnected.clear()
            await runtime.stop()
            await handler.is_disconnected.wait()
            with pytest.raises(RuntimeUnavailableError):
                await plugin.push(ContainerUpdate("web", GROWN))


async def test_a_push_before_synchronize_is_answered_is_an_error(tmp_path: Path) -> None:
    handler = RecordingHandler()
    early: list[asyncio.Task[None]] = []
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler) as plugin:
        runtime.before_chunk = lambda _: early.append(asyncio.create_task(plugin.push(ContainerUpdate("web", GROWN))))
        await handler.is_synchronized.wait()
        with pytest.raises(RuntimeUnavailableError):
            await early[0]
        await plugin.push(ContainerUpdate("web", GROWN))


async def test_awaiting_a_push_inside_a_hook_is_an_error_at_once(tmp_path: Path) -> None:
    handler = RecordingHandler()

    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler) as plugin:

        async def deadlock(_: Container) -> Placement:
            await plugin.push(ContainerUpdate("web", GROWN))
            return Placement(SHARED)

        await handler.is_synchronized.wait()
        handler.place = deadlock
        with pytest.raises(HookError, match="internal error"):
            await runtime.create_container(PodSandbox("db"), "app")
    assert runtime.connections == 1


@pytest.mark.parametrize("hook_fails", [False, True])
async def test_a_push_that_a_hook_starts_is_applied_after_the_hooks_answer(tmp_path: Path, hook_fails: bool) -> None:
    handler = RecordingHandler()
    pushes: list[asyncio.Task[None]] = []
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler) as plugin:
        await handler.is_synchronized.wait()
        web = await runtime.create_container(PodSandbox("web"), "app")

        async def start_a_push(_: Container) -> Placement:
            pushes.append(asyncio.create_task(plugin.push(ContainerUpdate(web, GROWN))))
            await asyncio.sleep(0)
            if hook_fails:
                raise PlacementError("no")
            return Placement(CpuSet([2]), (ContainerUpdate(web, CpuSet([5])),))

        handler.place = start_a_push
        creation = asyncio.create_task(runtime.create_container(PodSandbox("db"), "app"))
        assert (await asyncio.gather(creation, return_exceptions=True))[0].__class__ is (
            HookError if hook_fails else str
        )
        await asyncio.gather(*pushes)
        assert runtime.cpuset_of(web) == "0-7"  # the push came after the hook's update
    assert runtime.connections == 1


async def test_a_push_that_the_runtime_does_not_answer_fails_after_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "PUSH_TIMEOUT", 0.05)
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler) as plugin:
        await handler.is_synchronized.wait()
        web = await runtime.create_container(PodSandbox("web"), "app")
        async with runtime.busy():
            with pytest.raises(UpdateFailedError, match=f"did not answer the update of container {web}"):
                await plugin.push(ContainerUpdate(web, GROWN))


async def test_a_push_in_progress_fails_when_the_connection_ends(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler) as plugin:
        await handler.is_synchronized.wait()
        async with runtime.busy():
            push = asyncio.create_task(plugin.push(ContainerUpdate("web", GROWN)))
            await asyncio.sleep(0)
            runtime.drop()
            with pytest.raises(RuntimeUnavailableError):
                await push

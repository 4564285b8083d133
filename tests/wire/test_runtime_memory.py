"""Where the agent serves memory, plugin and runtime send each other preferred NUMA nodes, mounts, and the resizes of
pods.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from recording_handler import SHARED, RecordingHandler, running
from structlog.testing import capture_logs

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import AtCreation, Container, Mount, Placement
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.containers import Given, PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime

WEB = PodSandbox("web", namespace="shop")
RESIZES = 1 << (nri.UPDATE_POD_SANDBOX - 1)
PAGES = Mount("/dev/hugepages", "hugetlbfs", "nodev", ("pagesize=2M", "size=4194304"))


def giving(handler: RecordingHandler, *nodes: int, mounts: Sequence[Mount] = ()) -> None:
    async def place(_: Container) -> Placement:
        return Placement(SHARED, at_creation=AtCreation(nodes, tuple(mounts)))

    handler.place = place


# ---- creation


@pytest.mark.parametrize("nodes", [(1,), (0, 2)])
async def test_a_container_prefers_every_node_of_its_claims(tmp_path: Path, nodes: tuple[int, ...]) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler, serves_memory=True):
        await runtime.synchronized()
        giving(handler, *nodes)
        web = await runtime.create_container(WEB, "app")
    assert tuple(runtime.containers[web].preferred) == nodes


async def test_a_mount_arrives_with_its_options(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler, serves_memory=True):
        await runtime.synchronized()
        giving(handler, mounts=[PAGES])
        web = await runtime.create_container(WEB, "app")
    (mount,) = runtime.containers[web].mounts
    assert Mount(mount.destination, mount.type, mount.source, tuple(mount.options)) == PAGES


async def test_a_container_starts_without_a_preference_where_the_runtime_supports_none(tmp_path: Path) -> None:
    handler = RecordingHandler()
    runtime = NriRuntime(tmp_path / "s", version="v2.2.1", nri_version="")
    runtime.has_memory_policies = False
    async with runtime, running(tmp_path / "s", handler, serves_memory=True):
        await runtime.synchronized()
        giving(handler, 1, mounts=[PAGES])
        web = await runtime.create_container(WEB, "app")
    assert not runtime.containers[web].preferred
    assert runtime.containers[web].running
    assert not handler.runtime.memory_policies


async def test_the_handler_receives_what_is_mounted_and_whether_there_is_a_user_namespace(tmp_path: Path) -> None:
    handler = RecordingHandler()
    apart = PodSandbox("apart", user_namespace=True)
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler, serves_memory=True):
        await runtime.synchronized()
        one = await runtime.create_container(WEB, "app", volumes=["/data", "/logs/"])
        other = await runtime.create_container(apart, "app")
    assert {"/data", "/logs"} <= handler.created_with[one].mounted
    assert not handler.created_with[one].in_user_namespace
    assert handler.created_with[other].in_user_namespace


async def test_an_agent_that_serves_no_memory_subscribes_to_nothing_more_and_reads_no_mounts(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        web = await runtime.create_container(PodSandbox("web", user_namespace=True), "app", volumes=["/data"])
        await runtime.update_pod(WEB, Given(memory=1))
    assert not runtime.subscribed & RESIZES
    assert not handler.created_with[web].mounted
    assert not handler.created_with[web].in_user_namespace
    assert ("resize_pod", "uid-web") not in handler.calls


# ---- resizes


async def test_the_handler_is_asked_before_a_pod_is_resized(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler, serves_memory=True):
        await runtime.synchronized()
        assert runtime.subscribed & RESIZES
        await runtime.update_pod(WEB, Given(memory=1))
        assert ("resize_pod", "uid-web") in handler.calls

        async def refuse(_: str) -> None:
            raise PlacementError("pages are reserved")

        handler.on_resize = refuse
        with pytest.raises(HookError, match="^pages are reserved$"):
            await runtime.update_pod(WEB, Given(memory=2))
    assert runtime.connections == 1


@pytest.mark.parametrize(
    ("name", "version", "known_events"), [("containerd", "v2.1.9", 0x7FF), ("cri-o", "1.32.0", 0x7FF)]
)
async def test_a_runtime_that_does_not_know_resizes_stays_connected(
    tmp_path: Path, name: str, version: str, known_events: int
) -> None:
    handler = RecordingHandler()
    runtime = NriRuntime(tmp_path / "s", name=name, version=version, nri_version="")
    runtime.known_events = known_events
    async with runtime, running(tmp_path / "s", handler, serves_memory=True):
        await runtime.synchronized()
        assert not runtime.subscribed & RESIZES
    assert not [why for why in runtime.lost if "invalid plugin events" in why]


async def test_a_check_that_takes_too_long_refuses_the_resize_and_the_plugin_stays(tmp_path: Path) -> None:
    handler = RecordingHandler()
    runtime = NriRuntime(tmp_path / "s")
    runtime.request_timeout = 0.4
    async with runtime, running(tmp_path / "s", handler, serves_memory=True):
        await runtime.synchronized()

        async def hang(_: str) -> None:
            await asyncio.Event().wait()

        handler.on_resize = hang
        with pytest.raises(HookError, match="resize of pod web could not be checked in time"):
            await runtime.update_pod(WEB, Given(memory=1))
    assert runtime.connections == 1
    assert runtime.lost == []


async def test_a_refusal_that_the_kubelet_repeats_is_logged_once(tmp_path: Path) -> None:
    handler = RecordingHandler()
    refusals = iter((True, True, False, True))

    async def check(_: str) -> None:
        if next(refusals):
            raise PlacementError("pages are reserved")

    handler.on_resize = check
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler, serves_memory=True):
        await runtime.synchronized()
        with capture_logs() as logged:
            for _ in range(4):
                with contextlib.suppress(HookError):
                    await runtime.update_pod(WEB, Given(memory=1))
    lines = [line for line in logged if line["event"] == "resize of a pod refused"]
    assert [(line["pod"], line["error"]) for line in lines] == [("shop/web", "pages are reserved")] * 2

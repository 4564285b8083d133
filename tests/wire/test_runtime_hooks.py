"""The hooks in a container's life, and the plugin's answers."""

import asyncio
from pathlib import Path

import pytest
from recording_handler import SHARED, RecordingHandler, running

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container, ContainerUpdate, Placement
from dracpu_agent.runtime.hooks import SERVICE, Hooks
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_agent.runtime.ttrpc import Call, Code, StatusError
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime

WEB = PodSandbox("web", namespace="shop")
OWN = CpuSet([2, 3])


@pytest.mark.parametrize("own_methods", [True, False], ids=["own methods", "StateChange"])
async def test_the_handler_receives_a_containers_events_in_order(tmp_path: Path, own_methods: bool) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        runtime.own_methods = own_methods
        await runtime.synchronized()
        web = await runtime.create_container(WEB, "app")
        assert runtime.cpuset_of(web) == str(SHARED)
        await runtime.stop_container(web)
        await runtime.remove_container(web)
    assert handler.calls_about(web) == [
        "create",
        "created",
        "created",
        "start",
        "started",
        "stopped",
        "removed",
    ]
    assert runtime.lost == []


async def test_a_start_reports_the_creation_when_the_runtime_sends_no_post_create(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        runtime.containerd.sends_post_create = False
        await runtime.synchronized()
        web = await runtime.create_container(WEB, "app")
    assert handler.calls_about(web) == ["create", "created", "start", "started"]


async def test_the_handler_receives_the_fields_that_prove_a_claim(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        web = await runtime.create_container(
            WEB, "app", env=["DRA_CPUSET_u1=2-3"], cdi_devices=["dra.k8s.io/cpu=claim-u1"], cpus="0-7"
        )
    assert handler.created_with[web] == Container(
        id=web,
        name="app",
        namespace="shop",
        pod_name="web",
        pod_uid="uid-web",
        cdi_devices=("dra.k8s.io/cpu=claim-u1",),
        env=("DRA_CPUSET_u1=2-3",),
        cpus=CpuSet(range(8)),
    )


async def test_the_answer_to_a_hook_moves_other_containers(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        web = await runtime.create_container(WEB, "app")

        async def exclusive(_: Container) -> Placement:
            return Placement(OWN, (ContainerUpdate("unknown", SHARED), ContainerUpdate(web, CpuSet([6, 7]))))

        handler.place = exclusive
        pinned = await runtime.create_container(PodSandbox("db"), "app")
        assert runtime.cpuset_of(pinned) == "2-3"
        assert runtime.cpuset_of(web) == "6-7"
        handler.on_stop = lambda _: [ContainerUpdate(web, SHARED)]
        await runtime.stop_container(pinned)
        assert runtime.cpuset_of(web) == str(SHARED)


async def test_a_refusals_message_reaches_the_kubelet_unchanged_and_the_creation_is_undone(tmp_path: Path) -> None:
    handler = RecordingHandler()

    async def refuse(_: Container) -> Placement:
        raise PlacementError("a pod must not set DRA_CPUSET_x")

    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        handler.place = refuse
        with pytest.raises(HookError, match="^a pod must not set DRA_CPUSET_x$"):
            await runtime.create_container(WEB, "app")
        (refused,) = handler.created_with
        handler.place = None
        await runtime.create_container(WEB, "app")
    assert handler.calls_about(refused) == ["create", "stopped", "removed"]
    assert runtime.connections == 1


async def test_an_internal_error_fails_the_creation(tmp_path: Path) -> None:
    handler = RecordingHandler()

    async def fail(_: Container) -> Placement:
        raise KeyError("bug")

    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        handler.place = fail
        with pytest.raises(HookError, match="internal error"):
            await runtime.create_container(WEB, "app")
    assert runtime.connections == 1


async def test_a_placement_without_cpus_fails_the_creation(tmp_path: Path) -> None:
    handler = RecordingHandler()

    async def nowhere(_: Container) -> Placement:
        return Placement(EMPTY)

    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        handler.place = nowhere
        with pytest.raises(HookError, match="no CPU is left"):
            await runtime.create_container(WEB, "app")


async def test_a_slow_decision_is_answered_with_an_error_before_the_runtimes_timeout(tmp_path: Path) -> None:
    handler = RecordingHandler()

    async def never(_: Container) -> Placement:
        await asyncio.Event().wait()
        raise AssertionError

    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        handler.place = never
        with pytest.raises(HookError, match="in time"):
            await runtime.create_container(WEB, "app")
    assert runtime.connections == 1
    assert runtime.lost == []


async def test_a_timeout_inside_the_decision_is_not_mistaken_for_the_runtimes(tmp_path: Path) -> None:
    handler = RecordingHandler()

    async def api_is_down(_: Container) -> Placement:
        raise TimeoutError

    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        handler.place = api_is_down
        with pytest.raises(HookError, match="internal error"):
            await runtime.create_container(WEB, "app")


async def test_a_stalled_plugin_is_dropped_reconnects_and_pins_the_containers_created_meanwhile(tmp_path: Path) -> None:
    handler = RecordingHandler()
    handler.sync_updates = lambda containers: [ContainerUpdate(found.id, SHARED) for found in containers]

    async def stall(_: Container) -> Placement:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await handler.is_disconnected.wait()  # ignores its cancellation
        raise PlacementError("too late")

    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        runtime.request_timeout = 0.2
        handler.place = stall
        web = asyncio.create_task(runtime.create_container(WEB, "app"))
        await runtime.until(lambda: bool(runtime.lost))
        runtime.request_timeout = 2.0
        container_id = await web
        await runtime.until(lambda: runtime.cpuset_of(container_id) == str(SHARED))
    assert runtime.connections >= 2


async def test_concurrent_creations_are_all_answered(tmp_path: Path) -> None:
    handler = RecordingHandler()

    async def place(container: Container) -> Placement:
        await asyncio.sleep(0)
        return Placement(CpuSet([int(container.name)]))

    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        handler.place = place
        ids = await asyncio.gather(*(runtime.create_container(WEB, str(number)) for number in range(50)))
        assert [runtime.cpuset_of(container_id) for container_id in ids] == [str(number) for number in range(50)]


async def test_a_container_that_may_not_start_is_stopped(tmp_path: Path) -> None:
    handler = RecordingHandler()

    def refuse(_: Container) -> None:
        raise PlacementError("its CPUs were given away")

    for own_methods in (True, False):
        async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
            runtime.own_methods = own_methods
            await runtime.synchronized()
            handler.on_start = refuse
            web = await runtime.create_container(WEB, "app", start=False)
            with pytest.raises(HookError, match="given away"):
                await runtime.start_container(web)
        assert handler.calls_about(web) == ["create", "created", "created", "start", "stopped"]


async def test_a_resource_change_by_the_kubelet_does_not_move_a_container(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        web = await runtime.create_container(WEB, "app")
        await runtime.update_container(web, cpus="0-63")  # the kubelet's CPU manager
        assert runtime.cpuset_of(web) == str(SHARED)
        handler.on_update = lambda _: None
        await runtime.update_container(web, cpus="0-63")
        assert runtime.cpuset_of(web) == "0-63"


@pytest.mark.parametrize("own_methods", [True, False], ids=["own methods", "StateChange"])
async def test_the_end_of_a_resource_change_is_reported_unless_the_runtime_could_not_apply_it(
    tmp_path: Path, own_methods: bool
) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        runtime.own_methods = own_methods
        await runtime.synchronized()
        web = await runtime.create_container(WEB, "app")
        await runtime.update_container(web)
        runtime.containerd.failing_updates.add(web)
        with pytest.raises(HookError, match="cannot be written"):
            await runtime.update_container(web)
    assert handler.calls_about(web)[4:] == ["started", "update", "updated", "update"]


async def test_a_resource_change_of_a_container_without_cpus_is_refused(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        web = await runtime.create_container(WEB, "app")
        handler.on_update = lambda changed: ContainerUpdate(changed.id, EMPTY)
        with pytest.raises(HookError, match="no CPU is left"):
            await runtime.update_container(web)


@pytest.mark.parametrize("own_methods", [True, False], ids=["own methods", "StateChange"])
async def test_hooks_that_only_report_never_fail(tmp_path: Path, own_methods: bool) -> None:
    handler = RecordingHandler()

    def fail(_: str) -> list[ContainerUpdate]:
        raise KeyError("bug")

    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        runtime.own_methods = own_methods
        await runtime.synchronized()
        handler.on_stop = fail
        handler.on_notice = fail  # type: ignore[assignment]
        web = await runtime.create_container(WEB, "app")
        await runtime.stop_container(web)
        await runtime.stop_container(web)  # runtimes may repeat it
        await runtime.remove_container(web)
    assert handler.calls_about(web)[-3:] == ["stopped", "stopped", "removed"]
    assert runtime.lost == []


async def test_each_list_of_containers_replaces_the_previous_list() -> None:
    handler = RecordingHandler()
    hooks = Hooks(handler, on_synchronized=lambda: None)

    async def synchronize(container_id: str, *, more: bool) -> None:
        request = nri.SynchronizeRequest(containers=[nri.Container(id=container_id)], more=more)
        await hooks.answer(Call(SERVICE, "Synchronize", request.SerializeToString(), received=0.0, timeout=None))

    await synchronize("a", more=True)
    await synchronize("b", more=False)
    assert [container.id for container in handler.containers] == ["a", "b"]
    await synchronize("c", more=False)
    assert [container.id for container in handler.containers] == ["c"]


@pytest.mark.parametrize(
    ("service", "method"), [(SERVICE, "RunPodSandbox"), ("nri.pkg.api.v1alpha1.Other", "Configure")]
)
async def test_an_unknown_method_is_answered_with_unimplemented_so_that_the_runtime_can_fall_back(
    service: str, method: str
) -> None:
    hooks = Hooks(RecordingHandler(), on_synchronized=lambda: None)
    with pytest.raises(StatusError, match=f"{service}/{method}") as refused:
        await hooks.answer(Call(service, method, b"", received=0.0, timeout=None))
    assert refused.value.code == Code.UNIMPLEMENTED


async def test_a_request_that_cannot_be_decoded_is_answered_with_an_error() -> None:
    hooks = Hooks(RecordingHandler(), on_synchronized=lambda: None)
    with pytest.raises(StatusError, match="CreateContainer cannot be decoded") as refused:
        await hooks.answer(Call(SERVICE, "CreateContainer", b"\xff", received=0.0, timeout=None))
    assert refused.value.code == Code.INTERNAL

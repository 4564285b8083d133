"""The plugin connects, is configured, receives the list of containers, and reconnects after every kind of loss."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from background import background
from recording_handler import AT_ONCE, SHARED, RecordingHandler, running

from dracpu_agent.placement.container import ContainerUpdate
from dracpu_agent.runtime.plugin import NriPlugin, ReconnectDelays
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.node.containers import Container, PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime

EVERY_NRI_KNOWS = 0x7FF  # event bits; any other makes runtimes before NRI 0.10 drop the plugin


def with_containers(runtime: NriRuntime, count: int, *, ballast: int = 0) -> list[str]:
    ids = [f"old-{number}" for number in range(count)]
    for container_id in ids:
        pod = PodSandbox(f"pod-{container_id}")
        runtime.containers[container_id] = Container(
            container_id, pod, "app", state=nri.CONTAINER_RUNNING, stored=True, ballast=ballast
        )
    return ids


@pytest.mark.parametrize("skip_ids", [False, True])
async def test_the_handshake_runs_in_order(tmp_path: Path, skip_ids: bool) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime:
        runtime.skip_ids = skip_ids
        async with running(tmp_path / "s", handler):
            await runtime.synchronized()
            await handler.is_synchronized.wait()
    assert handler.calls[:3] == [("connected", "containerd"), ("synchronize", "0"), ("synchronized", "")]
    assert (runtime.registration.plugin_name, runtime.registration.plugin_idx) == ("dra-cpu", "45")
    assert runtime.subscribed & ~EVERY_NRI_KNOWS == 0
    assert runtime.subscribed != 0  # which would mean all events


async def test_hooks_are_timed_for_the_metrics(tmp_path: Path) -> None:
    timed: list[tuple[str, bool]] = []
    handler = RecordingHandler()
    async with (
        NriRuntime(tmp_path / "s") as runtime,
        running(tmp_path / "s", handler, answered=lambda hook, seconds: timed.append((hook, seconds >= 0))),
    ):
        await runtime.synchronized()
    assert timed == [("Configure", True), ("Synchronize", True)]


async def test_containers_that_ran_unpinned_are_repaired(tmp_path: Path) -> None:
    handler = RecordingHandler()
    handler.sync_updates = lambda containers: [ContainerUpdate(found.id, CpuSet([1, 2])) for found in containers]
    async with NriRuntime(tmp_path / "s") as runtime:
        ids = with_containers(runtime, 3)
        async with running(tmp_path / "s", handler):
            await runtime.until(lambda: all(runtime.cpuset_of(container_id) == "1-2" for container_id in ids))
    assert [(str(container), container.pod_uid) for container in handler.containers] == [
        (f"default/pod-{container_id}/app", f"uid-pod-{container_id}") for container_id in ids
    ]


async def test_an_update_that_cannot_be_sent_does_not_prevent_the_others(tmp_path: Path) -> None:
    handler = RecordingHandler()
    handler.sync_updates = lambda containers: [
        ContainerUpdate(containers[0].id, EMPTY),
        ContainerUpdate("unknown", CpuSet([1])),
        ContainerUpdate(containers[1].id, CpuSet([1])),
    ]
    async with NriRuntime(tmp_path / "s") as runtime:
        first, second = with_containers(runtime, 2)
        async with running(tmp_path / "s", handler):
            await runtime.until(lambda: runtime.cpuset_of(second) == "1")
            assert runtime.cpuset_of(first) == ""


async def test_a_long_list_is_received_in_parts(tmp_path: Path) -> None:
    handler = RecordingHandler()
    handler.sync_updates = lambda containers: [ContainerUpdate(found.id, CpuSet([1])) for found in containers]
    async with NriRuntime(tmp_path / "s") as runtime:
        runtime.request_timeout = 20.0
        ids = with_containers(runtime, 20, ballast=600_000)
        runtime.containers_per_chunk = 6
        async with running(tmp_path / "s", handler):
            await runtime.until(lambda: all(runtime.cpuset_of(container_id) == "1" for container_id in ids))
    assert [container.id for container in handler.containers] == ids
    assert [about for method, about in handler.calls if method == "synchronize"] == ["20"]


async def test_an_incomplete_list_is_discarded(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime:
        with_containers(runtime, 6)
        runtime.containers_per_chunk = 2
        breaks = iter([False, False, True])

        def break_off(_: int) -> None:
            if next(breaks, False):
                runtime.drop()

        runtime.before_chunk = break_off
        async with running(tmp_path / "s", handler):
            await runtime.synchronized()
    assert runtime.connections == 2
    assert [about for method, about in handler.calls if method == "synchronize"] == ["6"]


async def test_containers_that_have_ended_are_ignored(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        ended = await runtime.create_container(PodSandbox("job"), "app")
        alive = await runtime.create_container(PodSandbox("web"), "app")
        await runtime.stop_container(ended)
        await runtime.restart()
        await runtime.synchronized()
    assert [container.id for container in handler.containers] == [alive]


async def test_a_runtime_whose_list_may_not_be_complete_is_asked_for_a_second_one(tmp_path: Path) -> None:
    handler = RecordingHandler()
    runtime = NriRuntime(tmp_path / "s", name="cri-o", version="1.34.0", nri_version="")
    async with runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        await runtime.until(lambda: runtime.connections == 2)
        await runtime.synchronized()
        for name in "abc":  # a third list would be asked for during these calls
            await runtime.create_container(PodSandbox(name), "app")
    assert runtime.connections == 2


async def test_a_list_after_a_broken_connection_is_not_taken_for_the_second_one(tmp_path: Path) -> None:
    handler = RecordingHandler()
    runtime = NriRuntime(tmp_path / "s", name="cri-o", version="1.34.0", nri_version="")
    async with runtime, running(tmp_path / "s", handler, delays=replace(AT_ONCE, list_again=0.2)):
        await runtime.synchronized()
        await runtime.restart()  # containers were started without the agent since
        await runtime.until(lambda: runtime.connections == 3)


async def test_the_plugin_reconnects_to_a_restarted_runtime(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        for _ in range(3):
            await handler.is_synchronized.wait()
            await runtime.restart()
            await handler.is_disconnected.wait()
            await runtime.synchronized()
    assert runtime.connections == 4


async def test_a_runtime_that_starts_later_is_waited_for(tmp_path: Path) -> None:
    handler = RecordingHandler()
    runtime = NriRuntime(tmp_path / "s")
    async with running(tmp_path / "s", handler):
        await handler.is_disconnected.wait()
        assert "No such file" in handler.calls[0][1]
        assert "is NRI enabled" in handler.calls[0][1]
        async with runtime:
            await runtime.synchronized()


async def test_a_refused_registration_is_reported_and_retried(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime:
        runtime.refuse_registration = 'invalid plugin index "4"'
        async with running(tmp_path / "s", handler):
            await handler.is_disconnected.wait()
            assert 'refused the registration: invalid plugin index "4"' in handler.calls[0][1]
            runtime.refuse_registration = ""
            await runtime.synchronized()


async def test_after_an_error_in_synchronize_the_plugin_reconnects(tmp_path: Path) -> None:
    handler = RecordingHandler()
    failures = iter([KeyError("bug")])

    def fail_once(_: object) -> list[ContainerUpdate]:
        for failure in failures:
            raise failure
        return []

    handler.sync_updates = fail_once
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
    assert runtime.connections == 2


async def test_after_an_error_outside_a_call_the_plugin_reconnects(tmp_path: Path) -> None:
    handler = RecordingHandler()
    failures = iter([KeyError("bug")])

    def fail_once() -> None:
        for failure in failures:
            raise failure

    handler.on_synchronized = fail_once
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await handler.is_synchronized.wait()
    assert runtime.connections == 2
    assert ("disconnected", "internal error, see the agent's log") in handler.calls


async def test_hooks_in_progress_are_cancelled_with_the_connection(tmp_path: Path) -> None:
    handler = RecordingHandler()
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def wait_forever(_: object) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    handler.place = wait_forever  # type: ignore[assignment]
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        creation = asyncio.create_task(runtime.create_container(PodSandbox("web"), "app"))
        await entered.wait()
        runtime.drop()
        await cancelled.wait()
        await creation  # the runtime continues without the plugin
        await runtime.synchronized()


def test_the_delay_between_attempts_doubles_up_to_a_limit() -> None:
    delays = ReconnectDelays(first=0.2, longest=5.0)
    assert [delays.after(failures) for failures in (1, 2, 3, 5, 6, 10_000)] == [0.2, 0.4, 0.8, 3.2, 5.0, 5.0]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were slept, instead of sleeping."""
    seconds: list[float] = []
    sleep = asyncio.sleep

    async def at_once(delay: float) -> None:
        seconds.append(delay)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    return seconds


async def test_after_many_disconnects_in_a_row_the_plugin_still_reconnects_ever_more_slowly(
    tmp_path: Path, slept: list[float]
) -> None:
    handler = RecordingHandler()
    plugin = NriPlugin(tmp_path / "s", handler, delays=ReconnectDelays(first=0.2, longest=5.0, stable=1000.0))
    async with NriRuntime(tmp_path / "s") as runtime, background(plugin.run()):
        for _ in range(7):
            await handler.is_synchronized.wait()
            runtime.drop()
            await handler.is_disconnected.wait()
        await handler.is_synchronized.wait()
        container = await runtime.create_container(PodSandbox("web"), "app")
        assert runtime.cpuset_of(container) == str(SHARED)
    assert slept == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


async def test_the_delays_start_again_after_a_connection_that_lasted(tmp_path: Path, slept: list[float]) -> None:
    handler = RecordingHandler()
    plugin = NriPlugin(tmp_path / "s", handler, delays=ReconnectDelays(first=0.2, longest=5.0, stable=0.000_001))
    async with NriRuntime(tmp_path / "s") as runtime:
        runtime.refuse_registration = "not now"
        async with background(plugin.run()):
            while len(slept) < 6:
                handler.is_disconnected.clear()
                await handler.is_disconnected.wait()
            runtime.refuse_registration = ""
            await handler.is_synchronized.wait()
            refused = list(slept)
            runtime.drop()
            await handler.is_disconnected.wait()
            await handler.is_synchronized.wait()
    assert refused[:6] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert slept[len(refused) :] == [0.2]

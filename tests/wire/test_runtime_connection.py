"""Connecting, being configured, learning what runs, and doing it again after every kind of loss."""

import asyncio
from pathlib import Path

import pytest
from recording_handler import RecordingHandler, running

from dracpu_agent.placement.container import ContainerUpdate
from dracpu_agent.runtime.plugin import Backoff
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.node.containers import Container, PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime

EVERY_NRI_KNOWS = 0x7FF  # event bits; any other makes runtimes before NRI 0.10 drop the plugin


def with_containers(runtime: NriRuntime, count: int, *, ballast: int = 0) -> list[str]:
    ids = [f"old-{number}" for number in range(count)]
    for container_id in ids:
        pod = PodSandbox(f"pod-{container_id}")
        runtime.containers[container_id] = Container(container_id, pod, "app", stored=True, ballast=ballast)
    return ids


@pytest.mark.parametrize("skip_ids", [False, True])
async def test_the_handshake_runs_in_order(tmp_path: Path, skip_ids: bool) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime:
        runtime.skip_ids = skip_ids
        async with running(tmp_path / "s", handler):
            await runtime.synchronized()
            await handler.is_synchronized.wait()
    assert handler.told[:3] == [("connected", "containerd"), ("synchronize", "0"), ("synchronized", "")]
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
    handler.sync_updates = lambda containers: [ContainerUpdate(one.id, CpuSet([1, 2])) for one in containers]
    async with NriRuntime(tmp_path / "s") as runtime:
        ids = with_containers(runtime, 3)
        async with running(tmp_path / "s", handler):
            await runtime.until(lambda: all(runtime.cpuset_of(one) == "1-2" for one in ids))
    assert [(str(known), known.pod_uid) for known in handler.containers] == [
        (f"default/pod-{one}/app", f"uid-pod-{one}") for one in ids
    ]


async def test_one_update_that_cannot_be_sent_does_not_keep_back_the_others(tmp_path: Path) -> None:
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


async def test_a_list_of_megabytes_comes_in_parts(tmp_path: Path) -> None:
    handler = RecordingHandler()
    handler.sync_updates = lambda containers: [ContainerUpdate(one.id, CpuSet([1])) for one in containers]
    async with NriRuntime(tmp_path / "s") as runtime:
        runtime.request_timeout = 20.0
        ids = with_containers(runtime, 20, ballast=600_000)
        runtime.containers_per_chunk = 6
        async with running(tmp_path / "s", handler):
            await runtime.until(lambda: all(runtime.cpuset_of(one) == "1" for one in ids))
    assert [one.id for one in handler.containers] == ids
    assert [about for method, about in handler.told if method == "synchronize"] == ["20"]


async def test_a_list_that_breaks_off_is_forgotten(tmp_path: Path) -> None:
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
    assert [about for method, about in handler.told if method == "synchronize"] == ["6"]


async def test_containers_that_have_ended_are_nobodys_business(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await runtime.synchronized()
        ended = await runtime.create_container(PodSandbox("job"), "app")
        alive = await runtime.create_container(PodSandbox("web"), "app")
        await runtime.stop_container(ended)
        await runtime.restart()
        await runtime.synchronized()
    assert [known.id for known in handler.containers] == [alive]


async def test_a_restarted_runtime_is_found_again(tmp_path: Path) -> None:
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
        assert "No such file" in handler.told[0][1]
        assert "NRI" in handler.told[0][1]  # what to look at
        async with runtime:
            await runtime.synchronized()


async def test_a_refused_registration_is_told_and_tried_again(tmp_path: Path) -> None:
    handler = RecordingHandler()
    async with NriRuntime(tmp_path / "s") as runtime:
        runtime.refuse_registration = 'invalid plugin index "4"'
        async with running(tmp_path / "s", handler):
            await handler.is_disconnected.wait()
            assert 'refused the registration: invalid plugin index "4"' in handler.told[0][1]
            runtime.refuse_registration = ""
            await runtime.synchronized()


async def test_a_list_that_cannot_be_handled_is_asked_for_again(tmp_path: Path) -> None:
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


async def test_a_bug_outside_any_answer_costs_a_connection_and_not_the_plugin(tmp_path: Path) -> None:
    handler = RecordingHandler()
    failures = iter([KeyError("bug")])

    def fail_once() -> None:
        for failure in failures:
            raise failure

    handler.on_synchronized = fail_once
    async with NriRuntime(tmp_path / "s") as runtime, running(tmp_path / "s", handler):
        await handler.is_synchronized.wait()
    assert runtime.connections == 2
    assert ("disconnected", "internal error, see the agent's log") in handler.told


async def test_hooks_under_way_end_with_the_connection(tmp_path: Path) -> None:
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
        await creation  # the runtime goes on without us
        await runtime.synchronized()


def test_attempts_slow_down_up_to_a_limit() -> None:
    backoff = Backoff(first=0.2, longest=5.0)
    assert [backoff.delay(failures) for failures in (1, 2, 3, 5, 6, 10_000)] == [0.2, 0.4, 0.8, 3.2, 5.0, 5.0]

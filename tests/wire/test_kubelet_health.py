"""The health stream sends all devices at once, on each change, and again before the lease expires."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from fake_kubelet import kubelet_root

from dracpu_agent.kubelet.health import DeviceHealth, HealthStreams
from dracpu_agent.kubelet.proto.kubelet_health_pb2 import HEALTHY, UNHEALTHY, NodeWatchResourcesRequest
from dracpu_agent.kubelet.proto.kubelet_registration_pb2 import PluginInfo
from dracpu_agent.kubelet.sockets import SocketServer
from dracpu_sandbox.node.plugins import DRA_SERVICES, HEALTH_SERVICES, RegisteredPlugin

NEVER = 3600.0


class Devices:
    def __init__(self) -> None:
        self.all = [DeviceHealth("vm1", "cpudev001", True), DeviceHealth("vm1", "cpudev002", False, "CPU 2 is offline")]

    def snapshot(self) -> Sequence[DeviceHealth]:
        return self.all


@asynccontextmanager
async def watched(streams: HealthStreams, service: str = HEALTH_SERVICES[0]) -> AsyncIterator[RegisteredPlugin]:
    with kubelet_root() as root:
        server = SocketServer(root / "dra.sock", streams.services())
        await server.start()
        async with grpc.aio.insecure_channel(f"unix:{root / 'dra.sock'}") as channel:
            yield RegisteredPlugin(PluginInfo(), channel, DRA_SERVICES[0], service)
        streams.close()
        await server.stop(5)


@pytest.mark.parametrize("service", HEALTH_SERVICES)
async def test_the_first_message_has_all_devices(service: str) -> None:
    async with watched(HealthStreams(Devices(), NEVER), service) as kubelet:
        first, second = await anext(kubelet.watch_health())
    assert (first.device.pool_name, first.device.device_name, first.health) == ("vm1", "cpudev001", HEALTHY)
    assert (second.device.device_name, second.health, second.message) == ("cpudev002", UNHEALTHY, "CPU 2 is offline")
    assert first.health_check_timeout_seconds == second.health_check_timeout_seconds == 30
    assert first.last_updated_time > 1_700_000_000  # seconds, not milliseconds
    assert first.last_updated_time < 10_000_000_000


async def test_every_stream_receives_a_change() -> None:
    devices = Devices()
    streams = HealthStreams(devices, NEVER)
    async with watched(streams) as kubelet:
        watchers = [kubelet.watch_health(), kubelet.watch_health()]
        for watcher in watchers:
            await anext(watcher)
        devices.all = [DeviceHealth("vm1", "cpudev001", False, "gone")]
        streams.changed()
        for watcher in watchers:
            (device,) = await anext(watcher)
            assert (device.health, device.message) == (UNHEALTHY, "gone")


async def test_a_change_during_a_snapshot_is_not_lost() -> None:
    class ChangesOnce(Devices):
        def snapshot(self) -> Sequence[DeviceHealth]:
            before = list(self.all)
            if len(self.all) == 2:
                self.all = self.all[:1]
                streams.changed()
            return before

    streams = HealthStreams(ChangesOnce(), NEVER)
    async with watched(streams) as kubelet:
        watcher = kubelet.watch_health()
        assert len(await anext(watcher)) == 2
        assert len(await anext(watcher)) == 1


async def test_unchanged_health_is_sent_again_before_the_lease_expires() -> None:
    async with watched(HealthStreams(Devices(), resend_seconds=0.01)) as kubelet:
        watcher = kubelet.watch_health()
        assert [len(await anext(watcher)) for _ in range(3)] == [2, 2, 2]


async def test_streams_end_when_the_driver_stops() -> None:
    streams = HealthStreams(Devices(), NEVER)
    async with watched(streams) as kubelet:
        watcher = kubelet.watch_health()
        await anext(watcher)
        streams.close()
        assert [message async for message in watcher] == []


async def test_a_stream_ends_when_the_kubelet_disconnects() -> None:
    ended = asyncio.Event()

    class Observed(HealthStreams):
        async def _watch(self, request: NodeWatchResourcesRequest, context: "grpc.aio.ServicerContext") -> None:
            try:
                await super()._watch(request, context)
            finally:
                ended.set()

    async with watched(Observed(Devices(), NEVER)) as kubelet:
        watcher = kubelet.watch_health()
        await anext(watcher)
        assert not ended.is_set()
        await watcher.aclose()
        async with asyncio.timeout(10):
            await ended.wait()

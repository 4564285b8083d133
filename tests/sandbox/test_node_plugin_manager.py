"""Tests the plugin manager with drivers that start, restart, fail and stop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from background import background
from fake_kubelet import kubelet_root
from structlog.testing import capture_logs
from structlog.typing import EventDict

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_agent.kubelet.health import DeviceHealth
from dracpu_agent.kubelet.plugin import KubeletPlugin
from dracpu_agent.kubelet.registration import RegistrationStatus
from dracpu_sandbox.node.delays import Delays
from dracpu_sandbox.node.plugin_manager import PluginManager
from dracpu_sandbox.node.plugins import KubeletError

DRIVER = "dra.cpu"
QUICK = replace(Delays(), registry=0.01, registration_retry=0.01, wipe=0.05, health_retry=0.01)


class Driver:
    """A real plugin with a trivial driver."""

    def __init__(self, root: Path) -> None:
        self.healthy = True
        self.called = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.statuses: asyncio.Queue[RegistrationStatus] = asyncio.Queue()
        self.plugin = KubeletPlugin(DRIVER, root, self, self, self.statuses.put_nowait)

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        self.called.set()
        await self.may_answer.wait()
        return ()

    async def unprepare(self, claim: ClaimRef) -> None: ...

    def snapshot(self) -> Sequence[DeviceHealth]:
        return [DeviceHealth("n1", "d1", self.healthy, "" if self.healthy else "CPU 3 is offline")]


class World:
    def __init__(self, root: Path, delays: Delays) -> None:
        self.root = root
        self.wiped: asyncio.Queue[str] = asyncio.Queue()
        self.health_changed = asyncio.Event()
        self.manager = PluginManager(root / "plugins_registry", delays, self.wiped.put, self.health_changed.set)

    async def health(self, expected: str) -> str:
        while (state := self.manager.device(DRIVER, "n1", "d1")).health != expected:
            await self.health_changed.wait()
            self.health_changed.clear()
        return state.message


@asynccontextmanager
async def world(delays: Delays = QUICK) -> AsyncIterator[World]:
    with kubelet_root() as root:
        made = World(root, delays)
        async with background(made.manager.run()):
            yield made


async def test_a_driver_is_registered_while_its_socket_exists() -> None:
    async with world() as node:
        with pytest.raises(KubeletError, match="DRA driver dra.cpu is not registered"):
            node.manager.find(DRIVER)
        driver = Driver(node.root)
        await driver.plugin.start()
        assert (await node.manager.registered(DRIVER)).dra_service == "v1.DRAPlugin"
        await driver.plugin.stop()
        assert await node.wiped.get() == DRIVER
        with pytest.raises(KubeletError):
            node.manager.find(DRIVER)


async def test_a_driver_is_registered_again_when_its_socket_is_replaced() -> None:
    async with world(replace(QUICK, wipe=30)) as node:
        first, second = Driver(node.root), Driver(node.root)
        await first.plugin.start()
        await first.statuses.get()
        await second.plugin.start()  # as after SIGKILL: the socket of the first process still exists
        await second.statuses.get()
        await (await node.manager.registered(DRIVER)).prepare()
        await first.plugin.stop()
        await second.plugin.stop()
        assert node.wiped.empty()


async def test_a_running_call_fails_when_its_driver_is_deregistered() -> None:
    async with world(replace(QUICK, wipe=30)) as node:
        first, second = Driver(node.root), Driver(node.root)
        await first.plugin.start()
        registered = await node.manager.registered(DRIVER)
        call = asyncio.create_task(registered.prepare(ClaimRef("default", "one", "uid-1")))
        await first.called.wait()
        await second.plugin.start()
        with pytest.raises(KubeletError, match="NodePrepareResources: the plugin was deregistered during the call"):
            await call
        assert await node.manager.registered(DRIVER, registered) is not registered
        first.may_answer.set()
        await first.plugin.stop()
        await second.plugin.stop()


async def test_a_socket_without_a_server_does_not_prevent_the_registration_of_its_driver() -> None:
    refused = asyncio.Event()

    def notice(_logger: object, _method: str, event: EventDict) -> EventDict:
        if event["event"] == "plugin not registered":
            refused.set()
        return event

    async with world() as node:
        registry = node.root / "plugins_registry"
        registry.mkdir()
        with capture_logs([notice]), socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(registry / f"{DRIVER}-reg.sock"))
            await refused.wait()
        driver = Driver(node.root)
        await driver.plugin.start()
        assert (await driver.statuses.get()).registered
        await driver.plugin.stop()


async def test_device_health_is_updated_and_unknown_without_the_driver() -> None:
    async with world() as node:
        driver = Driver(node.root)
        await driver.plugin.start()
        assert await node.health("Healthy") == ""
        driver.healthy = False
        driver.plugin.health_changed()
        assert await node.health("Unhealthy") == "CPU 3 is offline"
        await driver.plugin.stop()
        await node.health("Unknown")

"""Registration: the order of the sockets, the answer to GetInfo, and how old sockets are replaced."""

import asyncio
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_kubelet import FakeKubelet, kubelet_root

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_agent.kubelet.health import DeviceHealth
from dracpu_agent.kubelet.plugin import KubeletPlugin
from dracpu_agent.kubelet.registration import RegistrationStatus
from dracpu_agent.kubelet.sockets import SocketError
from dracpu_sandbox.node.plugins import KubeletError


class Nothing:
    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        return ()

    async def unprepare(self, claim: ClaimRef) -> None: ...

    def snapshot(self) -> Sequence[DeviceHealth]:
        return ()


def plugin_at(root: Path, statuses: list[RegistrationStatus] | None = None, driver: str = "dra.cpu") -> KubeletPlugin:
    received = [] if statuses is None else statuses
    return KubeletPlugin(driver, root, Nothing(), Nothing(), received.append)


async def test_each_registration_by_the_kubelet_is_reported() -> None:
    statuses: list[RegistrationStatus] = []
    with kubelet_root() as root:
        plugin = plugin_at(root, statuses)
        await plugin.start()
        async with FakeKubelet(root) as kubelet:
            registered = await kubelet.register("dra.cpu")
            assert registered.info.type == "DRAPlugin"
            assert registered.info.endpoint == f"{root}/plugins/dra.cpu/dra.sock"
            assert list(registered.info.supported_versions) == [
                "v1.DRAPlugin",
                "v1beta1.DRAPlugin",
                "v1.DRAResourceHealth",
                "v1alpha1.DRAResourceHealth",
            ]
        async with FakeKubelet(root) as restarted:
            await restarted.register("dra.cpu")
        await plugin.stop()
    assert statuses == [RegistrationStatus(registered=True)] * 2


async def test_a_refused_registration_is_reported() -> None:
    statuses: list[RegistrationStatus] = []
    with kubelet_root() as root:
        plugin = plugin_at(root, statuses)
        await plugin.start()
        async with FakeKubelet(root, knows=["v9.DRAPlugin"]) as kubelet:
            with pytest.raises(KubeletError, match="is supported"):
                await kubelet.register("dra.cpu")
        await plugin.stop()
    (status,) = statuses
    assert not status.registered
    assert "v1beta1.DRAPlugin" in status.error


async def test_two_drivers_are_registered_independently() -> None:
    with kubelet_root() as root:
        plugins = [plugin_at(root, driver=driver) for driver in ("dra.cpu", "dra.memory")]
        for plugin in plugins:
            await plugin.start()
        async with FakeKubelet(root) as kubelet:
            for driver in ("dra.cpu", "dra.memory"):
                assert (await kubelet.register(driver)).info.name == driver
        for plugin in plugins:
            await plugin.stop()


async def test_only_root_can_use_the_sockets_and_stopping_removes_them() -> None:
    with kubelet_root() as root:
        plugin = plugin_at(root)
        await plugin.start()
        sockets = [root / "plugins/dra.cpu/dra.sock", root / "plugins_registry/dra.cpu-reg.sock"]
        assert [stat.S_IMODE(path.stat().st_mode) for path in sockets] == [0o600, 0o600]
        await plugin.stop()
        assert not any(path.exists() for path in sockets)
        await plugin.stop()  # stopping twice is not an error


async def test_sockets_of_a_killed_agent_are_replaced() -> None:
    with kubelet_root() as root:
        for stale in (root / "plugins/dra.cpu/dra.sock", root / "plugins_registry/dra.cpu-reg.sock"):
            stale.parent.mkdir(parents=True)
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(stale))
        plugin = plugin_at(root)
        await plugin.start()
        async with FakeKubelet(root) as kubelet:
            await (await kubelet.register("dra.cpu")).prepare()
        await plugin.stop()


async def test_a_file_at_the_sockets_path_is_not_deleted() -> None:
    with kubelet_root() as root:
        precious = root / "plugins_registry/dra.cpu-reg.sock"
        precious.parent.mkdir()
        precious.write_text("precious")
        with pytest.raises(SocketError, match="exists and is not a socket: remove it"):
            await plugin_at(root).start()
        assert precious.read_text() == "precious"
        assert not (root / "plugins/dra.cpu/dra.sock").exists()  # neither socket is served


@pytest.mark.parametrize("extra, fits", [(0, True), (1, False)])
async def test_a_path_that_is_too_long_for_linux_is_reported(extra: int, fits: bool) -> None:
    with kubelet_root() as root:
        length = len(f"{root}//plugins_registry/dra.cpu-reg.sock")
        deep = root / ("d" * (107 - length + extra))
        plugin = plugin_at(deep)
        if fits:
            await plugin.start()
        else:
            with pytest.raises(SocketError, match="has 108 bytes, Linux allows 107: use a shorter --kubelet-root"):
                await plugin.start()
        await plugin.stop()


async def test_a_directory_that_cannot_be_created_is_reported() -> None:
    with kubelet_root() as root:
        (root / "plugins").write_text("a file")
        with pytest.raises(SocketError, match=r"cannot prepare the socket .*/plugins/dra.cpu/dra.sock"):
            await plugin_at(root).start()


async def test_the_driver_deregisters_before_it_stops_serving() -> None:
    class Slow(Nothing):
        def __init__(self) -> None:
            self.started, self.open = asyncio.Event(), asyncio.Event()

        async def unprepare(self, claim: ClaimRef) -> None:
            self.started.set()
            await self.open.wait()

    with kubelet_root() as root:
        slow = Slow()
        plugin = KubeletPlugin("dra.cpu", root, slow, slow, lambda _: None)
        await plugin.start()
        async with FakeKubelet(root) as kubelet:
            registered = await kubelet.register("dra.cpu")
            call = asyncio.create_task(registered.unprepare_one(ClaimRef("default", "one", "uid-1")))
            await slow.started.wait()
            stop = asyncio.create_task(plugin.stop())
            await kubelet.deregistered("dra.cpu")
            assert not call.done()
            slow.open.set()
            await call  # the answer still arrives
            await stop

"""The kubelet's plugin manager: it registers drivers that appear, restart and disappear.

A new socket in plugins_registry means a new driver, a new file in its place means that the driver has restarted, and a
missing socket means that the driver has stopped. A lost connection changes no registration: only if it stays lost for
`Delays.wipe` seconds, the driver's slices on this node are deleted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import structlog

from dracpu_agent.kubelet.proto import kubelet_health_pb2 as health
from dracpu_sandbox.node.delays import Delays
from dracpu_sandbox.node.plugins import KubeletError, RegisteredPlugin, register

STARTING_SECONDS: Final = 0.02  # between two checks while a driver is starting
STARTING_CHECKS: Final = 500
LAST_CHECKS: Final = 25  # after a registration: an agent has a socket for each of its drivers
_HEALTH: Final = {health.HEALTHY: "Healthy", health.UNHEALTHY: "Unhealthy", health.UNKNOWN: "Unknown"}

log = structlog.get_logger("kubelet")

Identity = tuple[int, int]  # of a socket file, which each start of a driver replaces


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The health of a device as its driver reports it, the time until which it is valid, and the driver's message."""

    health: str
    until: float
    message: str = ""


@dataclass(eq=False)
class _Socket:
    """A registration socket, and its registration."""

    identity: Identity
    plugin: RegisteredPlugin | None = None
    failures: int = 0
    next_attempt: float = 0.0
    tasks: "list[asyncio.Task[None]]" = field(default_factory=list)


class PluginManager:
    """Registers drivers while `run` runs."""

    def __init__(
        self, registry: Path, delays: Delays, wipe: Callable[[str], Awaitable[None]], on_health: Callable[[], None]
    ) -> None:
        self._registry = registry
        self._delays = delays
        self._wipe_slices = wipe
        self._on_health = on_health
        self._sockets: dict[Path, _Socket] = {}
        self._wiping: dict[str, asyncio.Task[None]] = {}
        self._health: dict[tuple[str, str, str], DeviceState] = {}  # driver, pool, device
        self._quick_checks = 0  # how many are left
        self._check = asyncio.Event()
        self._registered = asyncio.Event()  # replaced at each registration

    def find(self, driver: str) -> RegisteredPlugin:
        """Returns a registered driver; raises KubeletError if it is not registered."""
        for known in self._sockets.values():
            if known.plugin is not None and known.plugin.info.name == driver:
                return known.plugin
        raise KubeletError(f"DRA driver {driver} is not registered")  # kubelet: the text of its error

    def expect_driver(self, driver: str) -> RegisteredPlugin | None:
        """Checks more often while a driver is starting, where the real kubelet uses inotify.

        Returns the registration of the previous process: a killed driver leaves its socket and stays registered.
        """
        self._quick_checks = STARTING_CHECKS
        self._check.set()
        with suppress(KubeletError):
            return self.find(driver)
        return None

    async def registered(self, driver: str, former: RegisteredPlugin | None = None) -> RegisteredPlugin:
        """Waits until the driver is registered by another process than that of the former registration."""
        while True:
            with suppress(KubeletError):
                if (found := self.find(driver)) is not former:
                    return found
            await self._registered.wait()

    def check_now(self) -> None:
        """Reads plugins_registry now."""
        self._check.set()

    def device(self, driver: str, pool: str, device: str) -> DeviceState:
        """Returns the health of a device; it is unknown when the last report has expired."""
        now = asyncio.get_running_loop().time()
        reported = self._health.get((driver, pool, device))
        return reported if reported is not None and now < reported.until else DeviceState("Unknown", now)

    async def run(self) -> None:
        """Runs until it is cancelled, and closes all connections then."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._reconcile(group)
                    self._check.clear()
                    self._quick_checks = max(0, self._quick_checks - 1)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(STARTING_SECONDS if self._quick_checks else self._delays.registry):
                            await self._check.wait()
        finally:
            for known in self._sockets.values():
                if known.plugin is not None:
                    await known.plugin.close()
            for left in (self._sockets, self._wiping, self._health):
                left.clear()

    async def _reconcile(self, group: asyncio.TaskGroup) -> None:
        found = await asyncio.to_thread(_sockets_in, self._registry)
        for path, known in list(self._sockets.items()):
            if found.get(path) != known.identity:
                del self._sockets[path]
                await self._deregister(known, group)
        for path, identity in found.items():
            known = self._sockets.setdefault(path, _Socket(identity))
            if known.plugin is None and known.next_attempt <= asyncio.get_running_loop().time():
                await self._register(path, known, group)

    async def _register(self, path: Path, known: _Socket, group: asyncio.TaskGroup) -> None:
        try:
            plugin = await register(path)
        except KubeletError as error:
            known.failures += 1
            delay = min(
                self._delays.registration_retry_most, self._delays.registration_retry * 2 ** (known.failures - 1)
            )
            known.next_attempt = asyncio.get_running_loop().time() + delay
            log.warning("plugin not registered", socket=path.name, error=str(error), retry_seconds=delay)
            return
        known.plugin = plugin
        driver = plugin.info.name
        log.info("plugin registered", driver=driver, service=plugin.dra_service)
        watch = plugin.watch_connection(lambda connected: self._connected(driver, connected, group))
        known.tasks.append(group.create_task(watch, name=f"{driver} connection"))
        if plugin.health_service:
            known.tasks.append(group.create_task(self._follow_health(plugin), name=f"{driver} health"))
        self._quick_checks = min(self._quick_checks, LAST_CHECKS)
        registered, self._registered = self._registered, asyncio.Event()
        registered.set()

    async def _deregister(self, known: _Socket, group: asyncio.TaskGroup) -> None:
        if known.plugin is None:
            return
        for task in known.tasks:
            task.cancel()
        await asyncio.gather(*known.tasks, return_exceptions=True)
        driver = known.plugin.info.name
        await known.plugin.close()
        log.info("plugin deregistered", driver=driver)
        self._forget_health(driver)
        self._connected(driver, False, group)

    def _connected(self, driver: str, connected: bool, group: asyncio.TaskGroup) -> None:
        if connected:
            wiping = self._wiping.pop(driver, None)
            if wiping is not None:
                wiping.cancel()
        elif driver not in self._wiping:
            self._wiping[driver] = group.create_task(self._wipe(driver), name=f"{driver} wipe")

    async def _wipe(self, driver: str) -> None:
        await asyncio.sleep(self._delays.wipe)
        log.info("driver is disconnected, deleting its slices", driver=driver, seconds=self._delays.wipe)
        await self._wipe_slices(driver)

    async def _follow_health(self, plugin: RegisteredPlugin) -> None:
        driver = plugin.info.name
        while True:
            try:
                async for devices in plugin.watch_health():
                    self._store_health(driver, devices)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # kubelet: does not retry
                    return
            self._forget_health(driver)  # kubelet: the end of the stream clears all health
            await asyncio.sleep(self._delays.health_retry)

    def _store_health(self, driver: str, devices: list[health.DeviceHealth]) -> None:
        now = asyncio.get_running_loop().time()  # kubelet: the time of receipt counts, not the driver's
        before = self._plain_health(driver)
        for report in devices:
            key = (driver, report.device.pool_name, report.device.device_name)
            lease = report.health_check_timeout_seconds or 30  # kubelet: 30 s by default
            self._health[key] = DeviceState(_HEALTH.get(report.health, "Unknown"), now + lease, report.message)
        if self._plain_health(driver) != before:
            self._on_health()

    def _forget_health(self, driver: str) -> None:
        known = [key for key in self._health if key[0] == driver]
        for key in known:
            del self._health[key]
        if known:
            self._on_health()

    def _plain_health(self, driver: str) -> Mapping[tuple[str, str, str], tuple[str, str]]:
        return {key: (state.health, state.message) for key, state in self._health.items() if key[0] == driver}


def _sockets_in(directory: Path) -> Mapping[Path, Identity]:
    """Returns the sockets of a directory, except hidden ones."""
    found: dict[Path, Identity] = {}
    if not directory.is_dir():
        return found
    for path in sorted(directory.iterdir()):
        with suppress(FileNotFoundError):  # it was deleted meanwhile
            if path.is_socket() and not path.name.startswith("."):  # kubelet: must not start with "."
                stat = path.stat()
                found[path] = (stat.st_ino, stat.st_ctime_ns)
    return found

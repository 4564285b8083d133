"""A kubelet for tests of the agent alone: it speaks the simulated kubelet's protocol when the test says so.

with kubelet_root() as root:
    async with FakeKubelet(root) as kubelet:
        plugin = await kubelet.register("dra.cpu")          # waits for the driver's socket
        devices = await plugin.prepare_one(claim)           # raises KubeletError with the driver's message
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from dracpu_sandbox.node.plugins import KNOWN_SERVICES, KubeletError, RegisteredPlugin, register


@contextmanager
def kubelet_root() -> Iterator[Path]:
    """An empty root; unlike pytest's tmp_path, its path is short enough for unix sockets below it."""
    with tempfile.TemporaryDirectory(prefix="k") as root:
        yield Path(root)


class FakeKubelet:
    """A kubelet that supports the services in `knows`. A second FakeKubelet stands for a restarted kubelet."""

    def __init__(self, root: Path, knows: Sequence[str] = KNOWN_SERVICES) -> None:
        self._registry = root / "plugins_registry"
        self._knows = knows
        self._plugins: list[RegisteredPlugin] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for plugin in self._plugins:
            await plugin.close()

    async def register(self, driver: str, seconds: float = 10.0) -> RegisteredPlugin:
        """Waits for the driver's registration socket, and registers the driver as the kubelet does."""
        socket = self._registry / f"{driver}-reg.sock"
        await _until(socket.is_socket, seconds, f"no socket {socket}")
        plugin = await register(socket, self._knows, driver)
        self._plugins.append(plugin)
        return plugin

    async def deregistered(self, driver: str, seconds: float = 10.0) -> None:
        """Waits until the driver has removed its registration socket."""
        socket = self._registry / f"{driver}-reg.sock"
        await _until(lambda: not socket.exists(), seconds, f"{socket} is still there")


async def _until(condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
    # The kubelet uses inotify for this, which the standard library lacks.
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise KubeletError(otherwise)

"""A gRPC server on a unix socket, as the kubelet expects of its plugins."""

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from dracpu_api.errors import DriverError

MAX_PATH_BYTES: Final = 107  # Linux: sun_path has 108 bytes, the last one is NUL


class SocketError(DriverError):
    """A socket for the kubelet cannot be opened; the agent cannot work without it."""


class SocketServer:
    """Serves gRPC handlers on a socket from `start` to `stop`, and replaces a socket left by an earlier process."""

    def __init__(self, path: Path, services: Sequence[grpc.GenericRpcHandler]) -> None:
        self._path = path
        self._services = services
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Starts to serve; clients can connect when this returns. Raises SocketError."""
        _prepare_path(self._path)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(self._services)
        try:
            server.add_insecure_port(f"unix:{self._path}")
            self._path.chmod(0o600)  # before the server starts: only root may connect
            await server.start()
        except (RuntimeError, OSError) as error:
            await server.stop(None)
            raise SocketError(f"cannot listen on {self._path}: {error}") from error
        self._server = server

    async def stop(self, grace_seconds: float) -> None:
        """Removes the socket, then waits up to `grace_seconds` for calls in progress."""
        if self._server is None:
            return
        self._path.unlink(missing_ok=True)
        await self._server.stop(grace_seconds)
        self._server = None


def _prepare_path(path: Path) -> None:
    length = len(bytes(path))
    if length > MAX_PATH_BYTES:
        raise SocketError(
            f"the socket path {path} has {length} bytes, Linux allows {MAX_PATH_BYTES}: use a shorter --kubelet-root"
        )
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        _remove_stale(path)
    except OSError as error:
        raise SocketError(f"cannot prepare the socket {path}: {error}") from error


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketError(f"{path} exists and is not a socket: remove it")
    path.unlink()

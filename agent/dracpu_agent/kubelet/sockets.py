"""One gRPC server on one unix socket, as the kubelet expects its plugins."""

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from dracpu_api.errors import DriverError

MAX_PATH_BYTES: Final = 107  # Linux: sun_path has 108 bytes, the last one is NUL


class SocketError(DriverError):
    """A socket that the kubelet needs cannot be served; the agent cannot work without it."""


class SocketServer:
    """Serves some services on a socket from `start` to `stop`. Where a former process left its socket, this one
    takes the place."""

    def __init__(self, path: Path, services: Sequence[grpc.GenericRpcHandler]) -> None:
        self._path = path
        self._services = services
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """After this, whoever connects is served."""
        _make_room(self._path)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(self._services)
        try:
            server.add_insecure_port(f"unix:{self._path}")
            self._path.chmod(0o600)  # before anybody is served: nobody but root has claims to hand in
            await server.start()
        except (RuntimeError, OSError) as error:
            await server.stop(None)
            raise SocketError(f"cannot listen on {self._path}: {error}") from error
        self._server = server

    async def stop(self, grace_seconds: float) -> None:
        """Takes the socket away, then lets the calls under way end, for as long as the grace lasts."""
        if self._server is None:
            return
        self._path.unlink(missing_ok=True)
        await self._server.stop(grace_seconds)
        self._server = None


def _make_room(path: Path) -> None:
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
        raise SocketError(f"{path} is in the way and is no socket: remove it")
    path.unlink()

"""Serves the agent's state as a JSON document on a unix socket that only root can open, for `dracpu-agent state`."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dracpu_api.errors import DriverError
from dracpu_api.serving.exchange import ExchangeServer

SOCKET: Final = "agent.sock"
EXCHANGE_SECONDS: Final = 5.0  # for the whole document, in the server and in the client


class StateError(DriverError):
    """The state cannot be served or read."""


class StateServer:
    """Sends the agent's current state to each client that connects."""

    def __init__(self, state_dir: Path, document: Callable[[], object]) -> None:
        self._path = state_dir / SOCKET
        self._document = document
        self._server: asyncio.Server | None = None
        self._exchanges = ExchangeServer(self._exchange, EXCHANGE_SECONDS)

    async def start(self) -> None:
        """Starts to listen, and replaces a socket left by an earlier process; raises StateError."""
        self._server = await asyncio.start_unix_server(self._exchanges.serve, sock=_bind(self._path))

    async def stop(self) -> None:
        """Removes the socket and aborts all connections."""
        if self._server is not None:
            self._path.unlink(missing_ok=True)
            await self._exchanges.stop(self._server)
            self._server = None

    async def _exchange(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(self._document()).encode())
        await writer.drain()


def read_state(state_dir: Path) -> object:
    """Reads the state of the agent that uses this directory; raises StateError."""
    path = state_dir / SOCKET
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(EXCHANGE_SECONDS)
            connection.connect(str(path))
            with connection.makefile("rb") as stream:
                answer = stream.read()
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise StateError(f"no agent serves {path}: is it running, and is --state-dir right?") from error
    except OSError as error:
        raise StateError(f"cannot read the agent's state from {path}: {error}") from error
    try:
        return json.loads(answer)
    except ValueError as error:
        raise StateError(f"the agent's answer on {path} is incomplete: see the agent's log") from error


def _bind(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        path.chmod(0o600)  # before listening: only root may connect
    except OSError as error:
        listening.close()
        raise StateError(f"cannot listen on {path}: {error}") from error
    return listening

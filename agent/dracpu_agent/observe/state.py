"""The state of a running agent as one JSON document, over a unix socket that only root can open.

`dracpu-agent state` reads it.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dracpu_agent.observe.exchange import ExchangeServer
from dracpu_api.errors import DriverError

SOCKET: Final = "agent.sock"
EXCHANGE_SECONDS: Final = 5.0  # for the whole document, on either side


class StateError(DriverError):
    """The state cannot be served, or nobody serves it."""


class StateServer:
    """Tells whoever connects the state of that moment."""

    def __init__(self, state_dir: Path, document: Callable[[], object]) -> None:
        self._path = state_dir / SOCKET
        self._document = document
        self._server: asyncio.Server | None = None
        self._exchanges = ExchangeServer(self._exchange, EXCHANGE_SECONDS)

    async def start(self) -> None:
        """Listens; a socket that a former process left is replaced."""
        self._server = await asyncio.start_unix_server(self._exchanges.serve, sock=_bind(self._path))

    async def stop(self) -> None:
        """Takes the socket away and breaks off what is under way."""
        if self._server is not None:
            self._path.unlink(missing_ok=True)
            await self._exchanges.stop(self._server)
            self._server = None

    async def _exchange(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(self._document()).encode())
        await writer.drain()


def read_state(state_dir: Path) -> object:
    """The state of the agent that runs here; raises StateError when there is none."""
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
        raise StateError(f"the agent broke off its answer on {path}; its log tells why") from error


def _bind(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        path.chmod(0o600)  # before it listens: nobody slips in
    except OSError as error:
        listening.close()
        raise StateError(f"cannot listen on {path}: {error}") from error
    return listening

"""An HTTP server that follows a test's scripts byte for byte: the first connection the first script, and so on.

async with scripted(answering(HELLO), hang_up) as server, talking_to(server.port) as client:
    assert (await ask(client)).body == b"hello"
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from dracpu_agent.http1.client import Answer, HttpClient, Limits

OK: Final = b"HTTP/1.1 200 OK\r\n"
EMPTY: Final = OK + b"Content-Length: 0\r\n\r\n"
HELLO: Final = OK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LARGE: Final = bytes(20_000_000)  # more than fits into the kernel's buffers
USUAL: Final = Limits()


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as the server received it."""

    line: str
    headers: dict[str, str]  # names as they were sent
    body: bytes


class Peer:
    """The client's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> ReceivedRequest:
        """Receives the next request with its body."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("ascii").removesuffix("\r\n\r\n")
        line, *lines = head.split("\r\n")
        headers = dict(header.split(": ", 1) for header in lines)
        return ReceivedRequest(line, headers, await self._reader.readexactly(int(headers.get("Content-Length", 0))))

    async def send(self, data: bytes) -> None:
        """Sends bytes unchanged."""
        self._writer.write(data)
        await self._writer.drain()

    async def send_bytewise(self, data: bytes) -> None:
        """Sends bytes one by one."""
        for at in range(len(data)):
            await self.send(data[at : at + 1])
            await asyncio.sleep(0)

    def end(self) -> None:
        """Closes the connection in an orderly way."""
        self._writer.close()

    def reset(self) -> None:
        """Aborts the connection: the kernel resets it if received bytes are unread."""
        self._writer.transport.abort()

    async def closed(self) -> None:
        """Returns when the client has closed the connection without sending anything more."""
        assert await self.rest() == b""

    async def rest(self) -> bytes:
        """The bytes that the client sends before it closes the connection."""
        with contextlib.suppress(ConnectionError):
            return await self._reader.read()
        return b""


Script = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    """A server that counts its connections and runs a script for each; a script that fails makes the test fail."""

    def __init__(self, scripts: tuple[Script, ...]) -> None:
        self._scripts = scripts
        self._tasks: list[asyncio.Task[None]] = []
        self.port = 0
        self.connections = 0
        self._connected = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The callback of asyncio's servers. The last script also serves all later connections."""
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        async with self._connected:
            self._connected.notify_all()
        try:
            await script(Peer(reader, writer))
        finally:
            writer.transport.abort()

    async def until_connected(self, count: int) -> None:
        """Waits until this number of connections has been made."""
        async with self._connected:
            await self._connected.wait_for(lambda: self.connections >= count)

    async def finished(self) -> None:
        """Waits until the scripts have ended."""
        await asyncio.gather(*self._tasks)


@contextlib.asynccontextmanager
async def scripted(
    *scripts: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[ScriptedServer]:
    """A server on a free port; leaving the block waits until every script has ended."""
    scripted_server = ScriptedServer(scripts)
    server = await asyncio.start_server(scripted_server.serve, host, 0, ssl=tls)
    scripted_server.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted_server
        await scripted_server.finished()
    finally:
        server.close()


def answering(*answers: bytes) -> Script:
    """Sends an answer to each request on a connection, then waits until the client closes it."""

    async def script(peer: Peer) -> None:
        for answer in answers:
            await peer.request()
            await peer.send(answer)
        await peer.closed()

    return script


async def hang_up(peer: Peer) -> None:
    """Receives a request and closes the connection without an answer."""
    await peer.request()
    peer.end()


@contextlib.asynccontextmanager
async def talking_to(port: int, limits: Limits = USUAL) -> AsyncIterator[HttpClient]:
    """A client of the server on this port."""
    client = HttpClient(f"http://127.0.0.1:{port}", limits=limits)
    try:
        yield client
    finally:
        await client.close()


async def ask(client: HttpClient, method: str = "GET", body: bytes | None = None, seconds: float = 20) -> Answer:
    """Sends a request without headers to /x."""
    return await client.request(method, "/x", headers={}, body=body, seconds=seconds)

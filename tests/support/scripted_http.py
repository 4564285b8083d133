"""An HTTP server that does, byte for byte, what a test's script says: one script for each connection, in turn.

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
LARGE: Final = bytes(20_000_000)  # more than the kernel's buffers take
USUAL: Final = Limits()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came in."""

    line: str
    headers: dict[str, str]  # names as they were written
    body: bytes


class Peer:
    """The client, as the server sees it on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> Asked:
        """The next request, whole."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("ascii").removesuffix("\r\n\r\n")
        line, *lines = head.split("\r\n")
        headers = dict(header.split(": ", 1) for header in lines)
        return Asked(line, headers, await self._reader.readexactly(int(headers.get("Content-Length", 0))))

    async def say(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def dribble(self, data: bytes) -> None:
        """Sends bytes one by one."""
        for at in range(len(data)):
            await self.say(data[at : at + 1])
            await asyncio.sleep(0)

    def end(self) -> None:
        """Closes the connection in due form."""
        self._writer.close()

    def reset(self) -> None:
        """Cuts the connection; what is still to be read makes that a reset."""
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Returns when the client has closed the connection, and said nothing before."""
        assert await self.left() == b""

    async def left(self) -> bytes:
        """What the client said before it closed the connection."""
        with contextlib.suppress(ConnectionError):
            return await self._reader.read()
        return b""


Script = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    """The scripts' server; `connections` counts. A script that fails is a failure of the test."""

    def __init__(self, scripts: tuple[Script, ...]) -> None:
        self._scripts = scripts
        self._tasks: list[asyncio.Task[None]] = []
        self.port = 0
        self.connections = 0
        self._connected = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The callback of asyncio's servers. The last script also serves whatever connects after it."""
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
        """Waits for so many connections."""
        async with self._connected:
            await self._connected.wait_for(lambda: self.connections >= count)

    async def finished(self) -> None:
        """Waits for the scripts to come to their ends."""
        await asyncio.gather(*self._tasks)


@contextlib.asynccontextmanager
async def scripted(
    *scripts: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[ScriptedServer]:
    """A server on a port of its own; in the end every script has to come to its end as well."""
    scripted_server = ScriptedServer(scripts)
    server = await asyncio.start_server(scripted_server.serve, host, 0, ssl=tls)
    scripted_server.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted_server
        await scripted_server.finished()
    finally:
        server.close()


def answering(*answers: bytes) -> Script:
    """Gives each request on a connection the next answer; then waits for the client to leave."""

    async def script(peer: Peer) -> None:
        for answer in answers:
            await peer.request()
            await peer.say(answer)
        await peer.gone()

    return script


async def hang_up(peer: Peer) -> None:
    """Takes a request and gives no answer."""
    await peer.request()
    peer.end()


@contextlib.asynccontextmanager
async def talking_to(port: int, limits: Limits = USUAL) -> AsyncIterator[HttpClient]:
    """A client of such a server."""
    client = HttpClient(f"http://127.0.0.1:{port}", limits=limits)
    try:
        yield client
    finally:
        await client.close()


async def ask(client: HttpClient, method: str = "GET", body: bytes | None = None, seconds: float = 20) -> Answer:
    """One request, whatever it is."""
    return await client.request(method, "/x", headers={}, body=body, seconds=seconds)

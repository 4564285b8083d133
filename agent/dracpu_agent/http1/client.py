"""A small HTTP/1.1 client for one server: all that the agent needs to talk to the API server, and nothing else.

It exists because every node pays for the memory: the client library it replaces cost 12 MiB of the agent's 60. It
keeps connections, knows TLS, streams and limits of time and size. It follows no redirects (the API server sends none,
and a token must not follow one), keeps no cookies, uses no proxies and takes no compressed answers.

Everything that goes wrong is an HttpError. What a connection was left in the middle of is never used again: only an
exchange that has been read to its very end gives its connection back.
"""

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from dracpu_agent.http1.connection import Connection
from dracpu_agent.http1.message import AnswerDecoder, ConnectionLostError, Head, HttpError, encode_request

_REPEATABLE: Final = frozenset({"GET", "HEAD"})
_PORTS: Final = {"https": 443, "http": 80}
_VISIBLE: Final = re.compile(r"[!-~]+")


class OriginError(HttpError):
    """The address of the server is not one."""


class ConnectError(HttpError):
    """No connection could be made, or not one to be trusted."""


class HttpTimeoutError(HttpError):
    """It took longer than it may."""


class AnswerTooLargeError(HttpError):
    """The answer is longer than anything that makes sense."""


class ClosedError(HttpError):
    """The client has been closed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the client allows itself and the server."""

    connections: int = 16  # exchanges beyond wait for their turn
    connect_seconds: float = 5.0  # TLS included
    idle_seconds: float = 80.0
    answer_bytes: int = 64 * 1024 * 1024  # of an answer that is read whole


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port; what stands before every path."""

    secure: bool
    host: str  # without the brackets of IPv6
    port: int
    authority: str  # as in the Host header
    base: str  # path in front of all others, usually empty

    @classmethod
    def parse(cls, url: str) -> Self:
        """From "https://10.96.0.1:443", "http://[::1]:8080" or "https://proxy.example/clusters/one"."""
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS[parts.scheme]
        except (ValueError, KeyError) as error:
            raise OriginError("the server's address is no https:// or http:// address with a valid port") from error
        if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
            raise OriginError("the server's address needs a host, and may have only a port and a path beside it")
        if not _VISIBLE.fullmatch(url):
            raise OriginError("the server's address has spaces or characters that are not ASCII")
        return cls(parts.scheme == "https", parts.hostname, port, parts.netloc, parts.path.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class StreamedAnswer:
    """An answer whose body is read as it arrives: iterate over it, or `read` the rest of it."""

    def __init__(self, exchange: "_Exchange", silence: float, limit: int) -> None:
        self.status = exchange.head.status
        self.headers = exchange.head.headers
        self._exchange = exchange
        self._silence = silence
        self._limit = limit

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        async with _no_longer_silent_than(self._silence):
            piece = await self._exchange.receive()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def read(self) -> bytes:
        """The whole body: of a refusal, for instance."""
        async with _no_longer_silent_than(self._silence):
            return await self._exchange.read(self._limit)


class HttpClient:
    """One server. `close` it in the end."""

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self._origin = Origin.parse(url)
        self._tls = tls  # None: the system's authorities, where the address says https
        self._server_name = server_name  # when the certificate names the server otherwise than its address
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.connections)
        self._open: set[Connection] = set()
        self._resting: list[Connection] = []  # the last one used is used first, so that the others come to their end
        self._closed = False

    async def close(self) -> None:
        """Closes all connections; exchanges under way end with an error."""
        self._closed = True
        connections = list(self._open)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.gone.wait()

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes | None = None, seconds: float
    ) -> Answer:
        """The whole answer, within so many seconds from now."""
        request = self._encode(method, target, headers, body)
        try:
            async with asyncio.timeout(seconds), self._exchange(method, request) as exchange:
                content = await exchange.read(self._limits.answer_bytes)
        except TimeoutError as error:
            raise HttpTimeoutError(f"no answer within {seconds:g} s") from error
        return Answer(exchange.head.status, exchange.head.headers, content)

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str], silence: float
    ) -> AsyncGenerator[StreamedAnswer, None]:
        """The answer as soon as it begins; it may last for ever, but not be silent for longer than so many seconds."""
        request = self._encode(method, target, headers, None)
        async with contextlib.AsyncExitStack() as until_left:
            async with _no_longer_silent_than(silence):
                exchange = await until_left.enter_async_context(self._exchange(method, request))
            yield StreamedAnswer(exchange, silence, self._limits.answer_bytes)

    def _encode(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        return encode_request(method, self._origin.base + target, self._origin.authority, headers, body)

    @contextlib.asynccontextmanager
    async def _exchange(self, method: str, request: bytes) -> AsyncGenerator["_Exchange", None]:
        async with self._turns:
            exchange = await self._begin(method, request)
            try:
                yield exchange
            finally:
                self._give_back(exchange)

    async def _begin(self, method: str, request: bytes) -> "_Exchange":
        """On a rested connection, or on a new one: also when the rested one turns out to have ended already."""
        rested = self._rested()
        if rested is not None:
            exchange = _Exchange(rested, method)
            try:
                await exchange.begin(request)
            except ConnectionLostError:
                if not exchange.repeatable:
                    raise
            else:
                return exchange
        exchange = _Exchange(await self._connect(), method)
        await exchange.begin(request)
        return exchange

    def _rested(self) -> Connection | None:
        if not self._resting:
            return None
        connection = self._resting.pop()
        connection.wake()
        return connection

    async def _connect(self) -> Connection:
        self._refuse_when_closed()
        where, seconds = self._origin.authority, self._limits.connect_seconds
        tls: ssl.SSLContext | bool | None = (self._tls or True) if self._origin.secure else None
        try:
            async with asyncio.timeout(seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._open.add, self._lost),
                    self._origin.host,
                    self._origin.port,
                    ssl=tls,
                    server_hostname=self._server_name if tls else None,
                )
        except TimeoutError as error:
            raise HttpTimeoutError(f"no connection to {where} within {seconds:g} s") from error
        except OSError as error:
            raise ConnectError(f"cannot connect to {where}: {_reason(error)}") from error
        if self._closed:
            connection.abort()
        self._refuse_when_closed()
        return connection

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise ClosedError("the client has been closed")

    def _give_back(self, exchange: "_Exchange") -> None:
        if not exchange.leaves_clean:
            exchange.connection.abort()
        elif exchange.connection.rest(self._limits.idle_seconds):
            self._resting.append(exchange.connection)

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._resting:
            self._resting.remove(connection)


class _Exchange:
    """One request and its answer, on a connection that is theirs alone meanwhile."""

    def __init__(self, connection: Connection, method: str) -> None:
        self.connection = connection
        self._method = method
        self._decoder = AnswerDecoder(method)
        self._sent = False
        self._early = b""  # of the body, arrived together with the head

    @property
    def head(self) -> Head:
        assert self._decoder.head is not None
        return self._decoder.head

    @property
    def leaves_clean(self) -> bool:
        return self._decoder.leaves_clean

    @property
    def repeatable(self) -> bool:
        """True when sending the request again cannot make anything happen twice."""
        return not self._decoder.begun and (not self._sent or self._method in _REPEATABLE)

    async def begin(self, request: bytes) -> None:
        """Sends the request, and waits for the head of the answer."""
        try:
            self._sent = self.connection.send(request)
            while self._decoder.head is None:
                self._early += await self._receive()
        except BaseException:
            self.connection.abort()
            raise

    async def receive(self) -> bytes:
        """More of the body; nothing at its end."""
        piece, self._early = self._early, b""
        while not piece and not self._decoder.complete:
            piece = await self._receive()
        return piece

    async def read(self, limit: int) -> bytes:
        """The rest of the body."""
        pieces, size = [], 0
        while piece := await self.receive():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise AnswerTooLargeError(f"the answer is larger than {limit} bytes")
        return b"".join(pieces)

    async def _receive(self) -> bytes:
        data = await self.connection.receive()
        if data:
            return self._decoder.feed(data)
        self._decoder.end()
        return b""


@contextlib.asynccontextmanager
async def _no_longer_silent_than(seconds: float) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise HttpTimeoutError("the connection fell silent") from error


def _reason(error: OSError) -> str:
    """Why there is no connection, in few words: asyncio's own repeat the address or list all that were tried."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {error.verify_message}"
    if error.errno and not isinstance(error, (ssl.SSLError, socket.gaierror)):  # whose numbers are their own
        return os.strerror(error.errno)
    return str(error.strerror or error) or "the server ended the connection at once"

"""A small HTTP/1.1 client for one server, with the features that the agent needs for the API server and no others.

It exists because its memory is paid on every node: the client library that it replaced took 12 MiB of the agent's 60.
It keeps connections open, and supports TLS, streams, timeouts and limits of size. It does not follow redirects (the API
server sends none, and a token must not follow one) and supports no cookies, proxies or compression.

A load balancer in front of the server may fail over without closing any connection, and then all connections are dead.
After one of them timed out, idle connections are not reused: each of them would cost another timeout.

Every failure is an HttpError. A connection is reused only after its answer was read to the end.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Self

from dracpu_agent.http1.connection import UNACKNOWLEDGED_SECONDS, Connection
from dracpu_agent.http1.exchange import Exchange
from dracpu_agent.http1.message import ConnectionLostError, HttpError, encode_request
from dracpu_agent.http1.origin import Origin


class ConnectError(HttpError):
    """The connection failed, or the server is not trusted."""


class HttpTimeoutError(HttpError):
    """A time limit was exceeded."""


class ClosedError(HttpError):
    """The client has been closed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of time, size and number."""

    connections: int = 16  # further exchanges wait for a free connection
    connect_seconds: float = 5.0  # including TLS
    idle_seconds: float = 80.0
    answer_bytes: int = 64 * 1024 * 1024  # of an answer that is read as a whole


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class StreamedAnswer:
    """An answer whose body is read as it arrives: iterate over it, or `read` the rest of it."""

    def __init__(
        self, exchange: Exchange, silence_timeout: Callable[[], AbstractAsyncContextManager[None]], limit: int
    ) -> None:
        self.status = exchange.head.status
        self.headers = exchange.head.headers
        self._exchange = exchange
        self._silence_timeout = silence_timeout
        self._limit = limit

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        async with self._silence_timeout():
            piece = await self._exchange.receive()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def read(self) -> bytes:
        """The rest of the body, for example the message of an error."""
        async with self._silence_timeout():
            return await self._exchange.read(self._limit)


class HttpClient:
    """Sends requests to one server, on connections that it keeps open until `close`."""

    def __init__(
        self,
        url: str,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self._origin = Origin.parse(url)
        self._tls = tls  # called for each new connection; None: trust the system's authorities, if the URL is https
        self._server_name = server_name  # the name in the server's certificate, if the URL has another
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.connections)
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []  # the last one used is reused first, so that the others time out
        self._closed = False

    async def close(self) -> None:
        """Closes all connections; exchanges in progress fail."""
        self._closed = True
        connections = list(self._open)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.closed.wait()

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes | None = None, seconds: float
    ) -> Answer:
        """The complete answer; raises HttpTimeoutError after `seconds`."""
        request = self._encode(method, target, headers, body)
        began = _now()
        try:
            async with asyncio.timeout(seconds), self._exchange(method, request) as exchange:
                content = await exchange.read(self._limits.answer_bytes)
        except TimeoutError as error:
            self._close_idle(opened_before=began)
            raise HttpTimeoutError(f"no answer within {seconds:g} s") from error
        return Answer(exchange.head.status, exchange.head.headers, content)

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str], silence: float
    ) -> AsyncGenerator[StreamedAnswer, None]:
        """The answer as soon as its head has arrived. It has no time limit, unless nothing arrives for `silence` s."""
        request = self._encode(method, target, headers, None)
        silence_timeout = partial(self._silence_timeout, silence)
        async with contextlib.AsyncExitStack() as until_left:
            async with silence_timeout():
                exchange = await until_left.enter_async_context(self._exchange(method, request))
            yield StreamedAnswer(exchange, silence_timeout, self._limits.answer_bytes)

    def _encode(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        return encode_request(method, self._origin.base + target, self._origin.authority, headers, body)

    @contextlib.asynccontextmanager
    async def _exchange(self, method: str, request: bytes) -> AsyncGenerator[Exchange, None]:
        async with self._slots:
            exchange = await self._begin(method, request)
            try:
                yield exchange
            finally:
                self._release(exchange)

    async def _begin(self, method: str, request: bytes) -> Exchange:
        """Uses an idle connection; if there is none, or the server has closed it meanwhile, a new connection."""
        idle = self._take_idle()
        if idle is not None:
            exchange = Exchange(idle, method)
            try:
                await exchange.begin(request)
            except ConnectionLostError:
                if not exchange.repeatable:
                    raise
            else:
                return exchange
        exchange = Exchange(await self._connect(), method)
        await exchange.begin(request)
        return exchange

    def _take_idle(self) -> Connection | None:
        if not self._idle:
            return None
        connection = self._idle.pop()
        connection.end_idle()
        return connection

    async def _connect(self) -> Connection:
        self._check_open()
        server, seconds = self._origin.authority, self._limits.connect_seconds
        tls: ssl.SSLContext | bool | None = None
        if self._origin.secure:
            tls = self._tls() if self._tls else True
        try:
            async with asyncio.timeout(seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._open.add, self._on_closed),
                    self._origin.host,
                    self._origin.port,
                    ssl=tls,
                    server_hostname=self._server_name if tls else None,
                )
        except TimeoutError as error:
            raise HttpTimeoutError(f"no connection to {server} within {seconds:g} s") from error
        except OSError as error:
            raise ConnectError(f"cannot connect to {server}: {_reason(error)}") from error
        if self._closed:
            connection.abort()
        self._check_open()
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client has been closed")

    def _release(self, exchange: Exchange) -> None:
        if not exchange.leaves_reusable:
            exchange.connection.abort()
        elif exchange.connection.begin_idle(self._limits.idle_seconds):
            self._idle.append(exchange.connection)

    def _on_closed(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if connection.unreachable:
            self._close_idle(opened_before=_now() - UNACKNOWLEDGED_SECONDS)

    def _close_idle(self, *, opened_before: float) -> None:
        """Closes idle connections that are probably dead, because another one was silent from that time on."""
        for connection in [idle for idle in self._idle if idle.opened_at <= opened_before]:
            self._idle.remove(connection)
            connection.abort()

    @contextlib.asynccontextmanager
    async def _silence_timeout(self, seconds: float) -> AsyncGenerator[None, None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            self._close_idle(opened_before=_now())  # a stream is silent for long also when its server is there
            raise HttpTimeoutError(f"the server sent nothing for {seconds:g} s") from error


def _now() -> float:
    return asyncio.get_running_loop().time()


def _reason(error: OSError) -> str:
    """The cause in few words: asyncio's own messages repeat the address or list all addresses that were tried."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {error.verify_message}"
    if error.errno and not isinstance(error, (ssl.SSLError, socket.gaierror)):  # their numbers are not errno's
        return os.strerror(error.errno)
    return str(error.strerror or error) or "the server closed the connection at once"

"""A load balancer fails over silently: connections are dead, and nobody has closed them."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from scripted_http import CHUNKED, HELLO, USUAL, Peer, Script, answering, ask, scripted, talking_to

from dracpu_agent.http1 import client as http1_client
from dracpu_agent.http1.client import HttpClient, HttpTimeoutError
from dracpu_agent.http1.connection import Connection

SECONDS = 0.05


def dying() -> tuple[Script, asyncio.Event]:
    """Answers one request, waits for the event, answers nothing any more, and returns when the client has hung up."""
    dead = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await dead.wait()
        await peer.send(HELLO)
        await peer.rest()

    return script, dead


@asynccontextmanager
async def pool_of_dead_connections(*, afterwards: tuple[Script, ...]) -> AsyncIterator[tuple[HttpClient, int]]:
    """A client with three idle connections that nobody serves any more; the scripts serve those that it opens later."""
    scripts = [dying() for _ in range(3)]
    async with (
        scripted(*(script for script, _ in scripts), *afterwards) as server,
        talking_to(server.port) as client,
    ):
        asked = [asyncio.create_task(ask(client)) for _ in scripts]
        await server.until_connected(len(scripts))
        for _, answer in scripts:
            answer.set()
        await asyncio.gather(*asked)
        yield client, len(scripts)
        assert server.connections == len(scripts) + len(afterwards), "no dead connection was used a second time"


async def test_after_one_timeout_no_idle_connection_is_reused() -> None:
    async with pool_of_dead_connections(afterwards=(answering(HELLO, HELLO),)) as (client, _):
        with pytest.raises(HttpTimeoutError):
            await ask(client, "POST", seconds=SECONDS)
        for _ in range(2):
            assert (await ask(client)).body == b"hello"


async def test_a_silent_stream_ends_the_reuse_of_idle_connections_too() -> None:
    async with pool_of_dead_connections(afterwards=(answering(HELLO),)) as (client, _):
        with pytest.raises(HttpTimeoutError, match="sent nothing"):
            async with client.stream("GET", "/x", headers={}, silence=SECONDS):
                pass
        assert (await ask(client)).body == b"hello"


async def test_a_stream_that_falls_silent_ends_the_reuse_of_idle_connections_too() -> None:
    async with (
        scripted(answering(CHUNKED), answering(HELLO), answering(HELLO)) as server,
        talking_to(server.port) as client,
    ):

        async def follow() -> None:
            async with client.stream("GET", "/x", headers={}, silence=1.0) as stream:
                assert (await ask(client)).body == b"hello"
                await anext(stream)

        with pytest.raises(HttpTimeoutError, match="sent nothing"):
            await follow()
        assert (await ask(client)).body == b"hello"
        assert server.connections == 3


async def test_a_connection_that_was_opened_during_the_wait_for_the_timeout_is_reused() -> None:
    silent = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        silent.set()
        await peer.rest()

    async with scripted(script, answering(HELLO, HELLO)) as server, talking_to(server.port) as client:
        waiting = asyncio.create_task(ask(client, seconds=0.2))
        await silent.wait()
        assert (await ask(client)).body == b"hello"
        with pytest.raises(HttpTimeoutError):
            await waiting
        assert (await ask(client)).body == b"hello"
        assert server.connections == 2


class Opened(Connection):
    """A connection that a test can reach."""

    made: "list[Opened]" = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.made.append(self)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    Opened.made.clear()
    monkeypatch.setattr(http1_client, "Connection", Opened)
    return Opened.made


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH])
async def test_a_request_is_repeated_on_a_new_connection_when_the_kernel_gives_an_idle_one_up(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(http1_client, "UNACKNOWLEDGED_SECONDS", 0)
    async with pool_of_dead_connections(afterwards=(answering(HELLO, HELLO), answering(HELLO))) as (client, dead):
        asking = asyncio.create_task(ask(client))
        await asyncio.sleep(0)
        for connection in opened[:dead]:  # the kernel reports it for the one that is waited for
            if connection._arrival is not None:
                connection.connection_lost(OSError(number, "reported by the kernel"))
        assert (await asking).body == b"hello"
        answers = await asyncio.gather(ask(client), ask(client))  # one of them uses no idle connection
        assert [answer.body for answer in answers] == [b"hello", b"hello"]


async def test_the_kernel_notices_a_server_that_has_disappeared(opened: list[Opened]) -> None:
    async with scripted(answering(HELLO)) as server, talking_to(server.port) as client:
        await ask(client)
        (connection,) = opened
        assert connection._transport is not None
        connected = connection._transport.get_extra_info("socket")
        assert 0 < connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 10_000
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        probing = sum(
            connected.getsockopt(socket.IPPROTO_TCP, option) for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
        )
        assert probing < USUAL.idle_seconds, "before the client closes the connection itself"

"""Probes and scrapes over real connections, including clients that misbehave."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager

import aiohttp
import pytest
from structlog.testing import capture_logs

from dracpu_agent.observe.http import pages
from dracpu_agent.observe.metrics import Metrics
from dracpu_api.listening import ListenError
from dracpu_api.serving.exchange import CONNECTIONS, CONNECTIONS_OF_A_PEER
from dracpu_api.serving.pages import PageServer


class Agent:
    def __init__(self) -> None:
        self.not_live: list[str] = []
        self.not_ready: list[str] = []

    def live(self) -> list[str]:
        return self.not_live

    def ready(self) -> list[str]:
        return self.not_ready


class Broken(Agent):
    def ready(self) -> list[str]:
        raise RuntimeError("a bug")


@asynccontextmanager
async def serving(agent: Agent | None = None, seconds: float = 10) -> AsyncIterator[PageServer]:
    server = PageServer("127.0.0.1:0", pages(agent or Agent(), Metrics("1.2.3")), seconds)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def ask(server: PageServer, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def dropped(reading: Awaitable[bytes]) -> bool:
    """Whether the server closed the connection, with or without a reset, and sent nothing."""
    try:
        return await reading == b""
    except ConnectionError:
        return True


async def test_a_healthy_agent_is_live_and_ready() -> None:
    async with serving() as server, aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as client:
        for path in ("/healthz", "/readyz", "/readyz?verbose"):
            async with client.get(path) as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_an_unhealthy_agent_is_answered_with_its_reasons_line_by_line() -> None:
    agent = Agent()
    async with serving(agent) as server, aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as client:
        agent.not_ready = ["NRI is not connected", "the checkpoint cannot be written: é is full"]
        async with client.get("/readyz") as answer:
            assert answer.status == 503
            assert (await answer.text()).splitlines() == agent.not_ready
        async with client.get("/healthz") as answer:
            assert answer.status == 200
        agent.not_live = ["a task has ended"]
        async with client.get("/healthz") as answer:
            assert answer.status == 503


async def test_metrics_are_served_with_their_content_type() -> None:
    async with (
        serving() as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as client,
        client.get("/metrics") as answer,
    ):
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'dra_cpu_build_info{version="1.2.3"} 1.0' in await answer.text()


async def test_head_has_the_headers_of_get_without_a_body() -> None:
    async with serving() as server:
        head = await ask(server, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        get = await ask(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert get == head + b"ok\n"
    assert b"Content-Length: 3\r\n" in head
    assert b"Connection: close\r\n" in head


@pytest.mark.parametrize(
    "request_line, status",
    [
        (b"GET / HTTP/1.1", b"404 Not Found"),
        (b"GET /healthz/ HTTP/1.1", b"404 Not Found"),
        (b"POST /other HTTP/1.1", b"404 Not Found"),
        (b"POST /healthz HTTP/1.1", b"405 Method Not Allowed"),
        (b"GET /healthz", b"400 Bad Request"),
        (b"GET /healthz HTTP/2.0", b"400 Bad Request"),
        (b"GET  /healthz HTTP/1.1", b"400 Bad Request"),
        (b"\x16\x03\x01\x02", b"400 Bad Request"),
        (b"GET /healthz HTTP/1.0", b"200 OK"),
    ],
)
async def test_each_request_line_has_its_status(request_line: bytes, status: bytes) -> None:
    async with serving() as server:
        answer = await ask(server, request_line + b"\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert (b"Allow: GET, HEAD\r\n" in answer) is status.startswith(b"405")


async def test_headers_that_are_too_large_are_refused() -> None:
    async with serving() as server:
        answer = await ask(server, b"GET /healthz HTTP/1.1\r\nCookie: " + b"x" * 9000)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_an_internal_error_is_logged_and_answered_without_details() -> None:
    async with serving(Broken()) as server:
        with capture_logs() as logged:
            answer = await ask(server, b"GET /readyz HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"bug" not in answer
        assert [(entry["event"], entry["path"]) for entry in logged] == [("cannot answer a request", "/readyz")]
        assert (await ask(server, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_sends_no_complete_request_is_disconnected() -> None:
    async with serving(seconds=0.05) as server:
        assert await ask(server, b"GET /healthz HTTP/1.1\r\n") == b""


async def test_a_client_that_disconnects_early_does_not_affect_others() -> None:
    async with serving() as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hea")
        writer.close()
        await writer.wait_closed()
        assert (await ask(server, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


PROBE = b"GET /healthz HTTP/1.1\r\n\r\n"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def idle(server: PageServer, address: str) -> Connection:
    """A connection from an address of this machine, on which nothing is sent."""
    return await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))


async def close(connections: Sequence[Connection]) -> None:
    for _, writer in connections:
        writer.close()


@pytest.mark.parametrize("addresses", [1, 3, CONNECTIONS + 8], ids="{} addresses".format)
async def test_a_probe_is_answered_however_many_idle_connections_there_are(addresses: int) -> None:
    async with serving(seconds=1000) as server:
        occupying = [await idle(server, f"127.0.1.{number % addresses + 1}") for number in range(2 * CONNECTIONS)]
        for _ in range(3):
            assert (await ask(server, PROBE)).startswith(b"HTTP/1.1 200 ")
        await close(occupying)


async def test_a_probe_is_answered_while_its_own_address_has_idle_connections() -> None:
    async with serving(seconds=1000) as server:
        occupying = [await idle(server, "127.0.0.1") for _ in range(2 * CONNECTIONS)]
        assert (await ask(server, PROBE)).startswith(b"HTTP/1.1 200 ")
        await close(occupying)


async def test_the_oldest_connection_of_an_address_yields_when_the_address_has_too_many() -> None:
    async with serving(seconds=1000) as server:
        other = await idle(server, "127.0.1.2")
        crowd = [await idle(server, "127.0.1.1") for _ in range(CONNECTIONS_OF_A_PEER + 1)]
        assert await dropped(crowd[0][0].read())
        for reader, writer in [other, *crowd[1:]]:
            writer.write(PROBE)
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        await close([other, *crowd])


async def test_when_all_connections_are_taken_one_of_the_address_that_has_most_yields() -> None:
    async with serving(seconds=1000) as server:
        alone = [await idle(server, f"127.0.1.{number}") for number in range(10, 10 + CONNECTIONS - 2)]
        crowd = [await idle(server, "127.0.1.1") for _ in range(2)]
        newcomer = await idle(server, "127.0.1.2")
        assert await dropped(crowd[0][0].read())
        for reader, writer in [*alone, crowd[1], newcomer]:
            writer.write(PROBE)
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        await close([*alone, *crowd, newcomer])


async def test_stopping_ends_idle_connections() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hea")
        assert (await ask(server, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await server.stop()
        assert await dropped(reader.read())
        writer.close()


async def test_a_port_in_use_is_reported() -> None:
    async with serving() as server:
        second = PageServer(f"127.0.0.1:{server.port}", pages(Agent(), Metrics("1")))
        with pytest.raises(ListenError, match=rf"cannot listen on 127.0.0.1:{server.port}: .*--http-address"):
            await second.start()
        await second.stop()

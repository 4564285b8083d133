"""Probes and scrapes over real connections, the rude ones too."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from structlog.testing import capture_logs

from dracpu_agent.observe.exchange import CONNECTIONS
from dracpu_agent.observe.http import HttpServer, HttpServerError
from dracpu_agent.observe.metrics import Metrics


class Agent:
    def __init__(self) -> None:
        self.troubles: list[str] = []
        self.reasons: list[str] = []

    def live(self) -> list[str]:
        return self.troubles

    def ready(self) -> list[str]:
        return self.reasons


class Broken(Agent):
    def ready(self) -> list[str]:
        raise RuntimeError("a defect")


@asynccontextmanager
async def serving(agent: Agent | None = None, seconds: float = 10) -> AsyncIterator[HttpServer]:
    server = HttpServer("127.0.0.1:0", agent or Agent(), Metrics("1.2.3"), seconds)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def ask(server: HttpServer, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def dropped(reading: Awaitable[bytes]) -> bool:
    """True when the server hung up, with or without a reset, and said nothing."""
    try:
        return await reading == b""
    except ConnectionError:
        return True


async def test_a_well_agent_is_live_and_ready() -> None:
    async with serving() as server, aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as client:
        for path in ("/healthz", "/readyz", "/readyz?verbose"):
            async with client.get(path) as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_reasons_are_told_line_by_line() -> None:
    agent = Agent()
    async with serving(agent) as server, aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as client:
        agent.reasons = ["NRI is not connected", "the checkpoint cannot be written: é is full"]
        async with client.get("/readyz") as answer:
            assert answer.status == 503
            assert (await answer.text()).splitlines() == agent.reasons
        async with client.get("/healthz") as answer:
            assert answer.status == 200
        agent.troubles = ["a task has ended"]
        async with client.get("/healthz") as answer:
            assert answer.status == 503


async def test_metrics_are_served_as_prometheus_reads_them() -> None:
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
async def test_what_is_not_served_is_refused(request_line: bytes, status: bytes) -> None:
    async with serving() as server:
        answer = await ask(server, request_line + b"\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert (b"Allow: GET, HEAD\r\n" in answer) is status.startswith(b"405")


async def test_headers_without_end_are_refused() -> None:
    async with serving() as server:
        answer = await ask(server, b"GET /healthz HTTP/1.1\r\nCookie: " + b"x" * 9000)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_defect_in_a_page_is_logged_and_answered() -> None:
    async with serving(Broken()) as server:
        with capture_logs() as logged:
            answer = await ask(server, b"GET /readyz HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"defect" not in answer
        assert [(entry["event"], entry["path"]) for entry in logged] == [("page failed", "/readyz")]
        assert (await ask(server, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_peer_that_says_nothing_is_dropped() -> None:
    async with serving(seconds=0.05) as server:
        assert await ask(server, b"GET /healthz HTTP/1.1\r\n") == b""


async def test_a_peer_that_leaves_early_harms_nobody() -> None:
    async with serving() as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hea")
        writer.close()
        await writer.wait_closed()
        assert (await ask(server, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_more_connections_than_allowed_are_dropped_and_leave_room_when_they_end() -> None:
    async with serving() as server:
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(CONNECTIONS)]
        assert await dropped(ask(server, b"GET /healthz HTTP/1.1\r\n\r\n"))
        for _, writer in idle:
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        for reader, writer in idle:
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        assert (await ask(server, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_stopping_ends_idle_connections() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /hea")
        assert (await ask(server, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await server.stop()
        assert await dropped(reader.read())
        writer.close()


async def test_a_busy_port_is_named() -> None:
    async with serving() as server:
        second = HttpServer(f"127.0.0.1:{server.port}", Agent(), Metrics("1"))
        with pytest.raises(HttpServerError, match=rf"cannot listen on 127.0.0.1:{server.port}: .*--http-address"):
            await second.start()
        await second.stop()

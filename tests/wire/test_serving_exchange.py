"""Exchanges with clients that read everything, and with clients that do not read."""

import asyncio
import contextlib
from typing import Any

from dracpu_api.serving.exchange import ExchangeServer

LARGE = b"x" * 10_000_000  # more than fits into the kernel's buffers


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    ended = asyncio.Event()

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(LARGE)
            await writer.drain()
        finally:
            ended.set()

    exchanges = ExchangeServer(talk, seconds=0.05)
    server = await asyncio.start_server(exchanges.serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1024)
    await ended.wait()
    with contextlib.suppress(ConnectionResetError):  # aborted before the rest was read
        assert len(await reader.read()) < len(LARGE)
    writer.close()
    await exchanges.stop(server)


async def test_a_client_that_reads_gets_everything() -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(LARGE)
        await writer.drain()

    exchanges = ExchangeServer(talk, seconds=30)
    server = await asyncio.start_server(exchanges.serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == LARGE
    writer.close()
    await exchanges.stop(server)


async def test_a_server_that_stops_disconnects_its_clients_without_an_error_of_the_event_loop() -> None:
    connected = asyncio.Event()
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()

    exchanges = ExchangeServer(talk, seconds=30)
    server = await asyncio.start_server(exchanges.serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    await connected.wait()
    await exchanges.stop(server)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    assert errors == []

"""A base for small stream servers: each connection serves one exchange within a time limit, and is then closed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

CONNECTIONS: Final = 32  # at the same time; probes, scrapers and people need far fewer

Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class ExchangeServer:
    """Runs the exchanges of a listening server, and cancels them when the server stops."""

    def __init__(self, exchange: Exchange, seconds: float) -> None:
        self._exchange = exchange
        self._seconds = seconds
        self._running: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The callback of asyncio's servers. A client that is too slow or disconnects gets no answer."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._running) >= CONNECTIONS:
            writer.transport.abort()
            return
        self._running.add(task)
        writer.transport.set_write_buffer_limits(0)  # `drain` then waits until the kernel has taken all data
        try:
            with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
                async with asyncio.timeout(self._seconds):
                    await self._exchange(reader, writer)
                    writer.close()
        finally:
            self._running.discard(task)
            if not writer.is_closing():
                writer.transport.abort()  # `close` would wait for a client that does not read

    async def stop(self, server: asyncio.Server) -> None:
        """Closes the port and every connection."""
        server.close()
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await server.wait_closed()

"""A base for small stream servers: each connection serves one exchange within a time limit, and is then closed.

An exchange takes milliseconds, unless its client sends or reads nothing. So when there are too many connections, the
oldest yields to the new one: a client that occupies connections cannot keep others out.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

CONNECTIONS: Final = 32  # at the same time; probes, scrapers and people need far fewer
CONNECTIONS_OF_A_PEER: Final = 8  # from one address

Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class ExchangeServer:
    """Runs the exchanges of a listening server, and cancels them when the server stops."""

    def __init__(self, exchange: Exchange, seconds: float) -> None:
        self._exchange = exchange
        self._seconds = seconds
        self._stopping = False
        self._running: set[asyncio.Task[None]] = set()
        self._peers: dict[asyncio.StreamWriter, str] = {}  # address of each open connection, the oldest first

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The callback of asyncio's servers. A client that is too slow or disconnects gets no answer."""
        task = asyncio.current_task()
        assert task is not None
        self._admit(writer)
        self._running.add(task)
        writer.transport.set_write_buffer_limits(0)  # `drain` then waits until the kernel has taken all data
        try:
            with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
                async with asyncio.timeout(self._seconds):
                    await self._exchange(reader, writer)
                    writer.close()
        except asyncio.CancelledError:
            if not self._stopping:  # asyncio 3.11 logs an error about the task of a connection that ends as cancelled
                raise
        finally:
            self._running.discard(task)
            self._peers.pop(writer, None)
            if not writer.is_closing():
                writer.transport.abort()  # `close` would wait for a client that does not read

    async def stop(self, server: asyncio.Server) -> None:
        """Closes the port and every connection."""
        self._stopping = True
        server.close()
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await server.wait_closed()

    def _admit(self, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("peername")
        peer = str(address[0]) if address else ""  # clients of a unix socket have no address
        crowded = self._crowded_peer(peer)
        if crowded is not None:
            oldest = next(open_ for open_, other in self._peers.items() if other == crowded)
            del self._peers[oldest]
            oldest.transport.abort()
        self._peers[writer] = peer

    def _crowded_peer(self, peer: str) -> str | None:
        """The address whose oldest connection yields to a new one from `peer`; None while there is room.

        When all connections are taken, it is the address that has most of them.
        """
        connections = Counter(self._peers.values())
        if connections[peer] >= CONNECTIONS_OF_A_PEER:
            return peer
        if len(self._peers) >= CONNECTIONS:
            return max(connections, key=connections.__getitem__)
        return None

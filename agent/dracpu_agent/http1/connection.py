"""One connection of the HTTP client: bytes out, bytes in, and an eye on it while nobody uses it.

It is a protocol of asyncio's rather than a pair of its streams, because a StreamReader tells nobody what arrives while
nobody reads. A server that ends an idle connection, or says something on it unasked, must be noticed at once.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from dracpu_agent.http1.message import ConnectionLostError

_ENOUGH: Final = 64 * 1024  # bytes that wait to be received; beyond, the server has to wait


class Connection(asyncio.Protocol):
    """From `connection_made` to `connection_lost`; used by one exchange at a time."""

    def __init__(self, made: Callable[["Connection"], None], lost: Callable[["Connection"], None]) -> None:
        self.gone = asyncio.Event()  # the socket is closed
        self._made = made
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._paused = False
        self._over = False  # nothing more will arrive
        self._broken: Exception | None = None  # why, when the server has not ended the connection in due form
        self._arrival: asyncio.Future[None] | None = None
        self._rest: asyncio.TimerHandle | None = None

    # ---- for the exchange

    def send(self, data: bytes) -> bool:
        """Sends it all, in the background; False when it is known at once that nothing of it has left."""
        assert self._transport is not None
        if self._transport.is_closing():
            return False
        self._transport.write(data)
        return not self._transport.is_closing()  # the write tries at once, and closes the transport when that fails

    async def receive(self) -> bytes:
        """What has arrived, at least a byte; nothing when the server has ended the connection."""
        if not self._received and not self._over:
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        if not self._received and self._broken is not None:
            raise ConnectionLostError(f"the connection broke: {self._broken}") from self._broken
        data = bytes(self._received)
        self._received.clear()
        if self._paused and self._transport is not None:
            self._transport.resume_reading()
            self._paused = False
        return data

    # ---- for the pool

    def rest(self, seconds: float) -> bool:
        """Waits for another exchange, so long at most; False, and aborted, when it is not fit for one."""
        assert self._transport is not None
        # an answer may come before the whole request has left
        if self._over or self._received or self._transport.get_write_buffer_size():
            self.abort()
            return False
        self._rest = asyncio.get_running_loop().call_later(seconds, self.abort)
        return True

    def wake(self) -> None:
        """Ends the rest."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def abort(self) -> None:
        """Closes the socket now; whoever waits to receive gets an error."""
        self._end(ConnectionAbortedError("it was closed on this side"))
        if self._transport is not None:
            self._transport.abort()

    # ---- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands, with TLS where that is used."""
        self._transport = cast(asyncio.Transport, transport)
        self._made(self)

    def data_received(self, data: bytes) -> None:
        """Keeps the bytes for `receive`."""
        if self._rest is not None:
            self.abort()
            return
        self._received += data
        if len(self._received) > _ENOUGH and not self._paused and self._transport is not None:
            self._transport.pause_reading()
            self._paused = True
        self._tell()

    def eof_received(self) -> None:
        """The server has said its last word; asyncio then closes our side too."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by whomever."""
        self._end(exc)
        self.wake()
        self.gone.set()
        self._lost(self)

    def _end(self, broken: Exception | None) -> None:
        if not self._over:
            self._over, self._broken = True, broken
        self._tell()

    def _tell(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

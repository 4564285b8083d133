"""A connection of the HTTP client: sends and receives bytes, and is watched while it is idle.

It is an asyncio protocol and not a pair of asyncio's streams, as a StreamReader reports nothing while nobody reads: a
server that closes an idle connection, or sends data on it unasked, must be noticed at once. A server that
disappears does not close its connections: the kernel notices that nothing acknowledges what was sent.
"""

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from typing import Final, cast

from dracpu_agent.http1.message import ConnectionLostError

UNACKNOWLEDGED_SECONDS: Final = 5  # after that the kernel gives a connection up: less than a request's time limit
KEEPALIVE_IDLE_SECONDS: Final = 15  # silence after which the kernel probes whether the server is still there
KEEPALIVE_INTERVAL_SECONDS: Final = 5

_BUFFER_LIMIT: Final = 64 * 1024  # bytes that wait for `receive`; beyond, reading pauses and the server has to wait
# Linux: a connection that was given up has the last error of its route, if there was one
_UNREACHABLE: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})


class Connection(asyncio.Protocol):
    """A connection, used by one exchange at a time."""

    def __init__(self, on_open: Callable[["Connection"], None], on_closed: Callable[["Connection"], None]) -> None:
        self.closed = asyncio.Event()  # the socket is closed
        self.opened_at = 0.0  # of the loop's clock
        self._on_open = on_open
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._paused = False
        self._ended = False  # nothing more will arrive
        self._error: Exception | None = None  # why it ended, unless the server closed it in an orderly way
        self._arrival: asyncio.Future[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    # ---- for the exchange

    def send(self, data: bytes) -> bool:
        """Sends the data in the background; False when it is clear at once that none of it was sent."""
        assert self._transport is not None
        if self._transport.is_closing():
            return False
        self._transport.write(data)
        return not self._transport.is_closing()  # asyncio: a write that fails at once closes the transport

    async def receive(self) -> bytes:
        """Waits for data and returns it; returns nothing when the server has closed the connection."""
        if not self._received and not self._ended:
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        if not self._received and self._error is not None:
            raise ConnectionLostError(f"the connection was lost: {self._error}") from self._error
        data = bytes(self._received)
        self._received.clear()
        if self._paused and self._transport is not None:
            self._transport.resume_reading()
            self._paused = False
        return data

    # ---- for the pool

    @property
    def unreachable(self) -> bool:
        """Whether the connection ended because the kernel could not reach the server any more."""
        return isinstance(self._error, OSError) and self._error.errno in _UNREACHABLE

    def begin_idle(self, seconds: float) -> bool:
        """Keeps the connection open for this time. Returns False, and aborts it, when it cannot be reused."""
        assert self._transport is not None
        # an answer may arrive before the whole request has been sent
        if self._ended or self._received or self._transport.get_write_buffer_size():
            self.abort()
            return False
        self._idle_timer = asyncio.get_running_loop().call_later(seconds, self.abort)
        return True

    def end_idle(self) -> None:
        """Ends the idle time, as the connection is reused or closed."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def abort(self) -> None:
        """Closes the socket now; a pending `receive` fails."""
        self._end(ConnectionAbortedError("the client closed it"))
        if self._transport is not None:
            self._transport.abort()

    # ---- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open, including TLS."""
        self._transport = cast(asyncio.Transport, transport)
        self.opened_at = asyncio.get_running_loop().time()
        _detect_silent_loss(transport.get_extra_info("socket"))
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Buffers the bytes for `receive`."""
        if self._idle_timer is not None:
            self.abort()
            return
        self._received += data
        if len(self._received) > _BUFFER_LIMIT and not self._paused and self._transport is not None:
            self._transport.pause_reading()
            self._paused = True
        self._wake_receiver()

    def eof_received(self) -> None:
        """The server has closed its side; asyncio then closes our side too."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._end(exc)
        self.end_idle()
        self.closed.set()
        self._on_closed(self)

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
        self._wake_receiver()

    def _wake_receiver(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


def _detect_silent_loss(connected: socket.socket) -> None:
    if sys.platform == "linux":
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_SECONDS * 1000)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SECONDS)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

"""NRI's multiplexer: two logical connections over one unix stream, one for the calls of each side.

A frame is a header (connection, length) and bytes. Frames say nothing of messages: what arrives on a connection is a
stream that may be split anywhere. What we send must respect how the runtime reads, see `encode`.
"""

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Final

from dracpu_api.errors import DriverError

PLUGIN_CONNECTION: Final = 1  # the runtime calls us
RUNTIME_CONNECTION: Final = 2  # we call the runtime

MAX_FRAME: Final = 4_194_314  # the largest ttrpc message, header included; no runtime writes more
MAX_FIRST_FRAME: Final = 4096

_HEADER: Final = struct.Struct(">II")  # connection, length
_READ_SIZE: Final = 64 * 1024


class ProtocolError(DriverError):
    """The runtime sent bytes that make no sense: the connection has to end."""


class ConnectionEndedError(DriverError):
    """The runtime closed the connection, as it does when it restarts or when a plugin was too slow."""


def encode(connection: int, header: bytes, payload: bytes) -> bytes:
    """One message as frames: one frame if it is small, else its header alone and then the rest.

    The runtime reads the frame that starts a message into 4096 bytes. A larger one makes it drop the plugin, or never
    answer. Frames of 4096 bytes throughout would pass too, but it queues no more than 256 of them.
    """
    size = len(header) + len(payload)
    if size > MAX_FRAME:
        raise ValueError(f"a message of {size} bytes does not fit into a frame")
    if size <= MAX_FIRST_FRAME:
        return b"".join((_HEADER.pack(connection, size), header, payload))
    return b"".join(
        (_HEADER.pack(connection, len(header)), header, _HEADER.pack(connection, len(payload)), payload),
    )


class Decoder:
    """Takes the stream apart again, in whatever pieces it arrives."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._connection = 0
        self._left = 0  # bytes of the current frame that are still to come

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Connection and bytes for it; a frame that is not complete yet gives what is there of it."""
        pieces: list[tuple[int, bytes]] = []
        position = 0
        while position < len(data):
            if self._left == 0:
                position = self._read_header(data, position)
                continue
            piece = data[position : position + self._left]
            pieces.append((self._connection, piece))
            self._left -= len(piece)
            position += len(piece)
        return pieces

    def _read_header(self, data: bytes, position: int) -> int:
        end = position + _HEADER.size - len(self._header)
        self._header += data[position:end]
        if len(self._header) == _HEADER.size:
            self._connection, self._left = _HEADER.unpack(self._header)
            self._header.clear()
            if self._left > MAX_FRAME:
                raise ProtocolError(f"the runtime announced a frame of {self._left} bytes, the limit is {MAX_FRAME}")
        return end


class Mux:
    """The unix stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, connection: int, header: bytes, payload: bytes) -> None:
        """Writes a message. It enters the stream in one step, so messages of concurrent tasks never mix."""
        self._writer.write(encode(connection, header, payload))
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionEndedError(f"the connection to the runtime broke: {error}") from error

    async def run(self, receivers: Mapping[int, Callable[[bytes], None]]) -> None:
        """Hands out what arrives, until the runtime ends the stream: that raises ConnectionEndedError."""
        decoder = Decoder()
        while data := await self._read():
            for connection, piece in decoder.feed(data):
                # as the runtime does, drop what is for a connection that nobody serves
                if receive := receivers.get(connection):
                    receive(piece)
        raise ConnectionEndedError("the runtime closed the connection")

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_READ_SIZE)
        except OSError as error:
            raise ConnectionEndedError(f"the connection to the runtime broke: {error}") from error

    def close(self) -> None:
        """Ends the stream at once; nothing that is unsent matters any more."""
        self._writer.transport.abort()

"""NRI's multiplexer: two logical connections over one unix stream, one for the calls of each side.

A frame is a header (connection, length) and bytes. Frames do not delimit messages: a connection carries a stream of
bytes that may be split anywhere. The frames that we send must fit the runtime's buffer, see `encode`.
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
    """The runtime sent invalid bytes: the connection has to end."""


class ConnectionEndedError(DriverError):
    """The connection ended: the runtime closes it when it restarts or when a plugin was too slow."""


def encode(connection: int, header: bytes, payload: bytes) -> bytes:
    """A message as one frame if it is small, else as two: the header alone, then the payload.

    The runtime reads the first frame of a message into a buffer of 4096 bytes. After a larger frame it drops the plugin
    or never answers. It queues at most 256 frames, so a long message is not cut into frames of 4096 bytes.
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
    """Splits the received stream by connection; its pieces may have any size."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._connection = 0
        self._left = 0  # bytes of the current frame that have not arrived

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Pairs of a connection and bytes for it; the bytes of an incomplete frame are returned as they arrive."""
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
    """The unix stream that carries all connections."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, connection: int, header: bytes, payload: bytes) -> None:
        """Writes a message in one step, so that messages of concurrent tasks never mix."""
        self._writer.write(encode(connection, header, payload))
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionEndedError(f"the connection to the runtime broke: {error}") from error

    async def run(self, receivers: Mapping[int, Callable[[bytes], None]]) -> None:
        """Passes received bytes to the receivers; raises ConnectionEndedError at the end of the stream."""
        decoder = Decoder()
        while data := await self._read():
            for connection, piece in decoder.feed(data):
                # bytes for other connections are dropped, as in the runtime
                if receive := receivers.get(connection):
                    receive(piece)
        raise ConnectionEndedError("the runtime closed the connection")

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_READ_SIZE)
        except OSError as error:
            raise ConnectionEndedError(f"the connection to the runtime broke: {error}") from error

    def close(self) -> None:
        """Ends the stream at once and discards unsent bytes."""
        self._writer.transport.abort()

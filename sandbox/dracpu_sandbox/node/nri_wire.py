"""The runtime's side of an NRI connection, which reads and writes as the Go implementation does.

It shares no code with the agent, so that it does not repeat the agent's mistakes. It imitates how Go reads: through a
buffer of 4096 bytes for whole mux frames, so that a larger frame in the wrong place ends the connection.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable

from dracpu_agent.runtime.proto import ttrpc_pb2

PLUGIN, RUNTIME = 1, 2  # logical connections
REQUEST, RESPONSE = 1, 2
GO_BUFFER = 4096
GO_QUEUE = 256  # mux frames that wait to be read on one logical connection
MAX_DATA = 4 << 20


class CallError(Exception):
    """The plugin answered with an error status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConnectionLost(Exception):  # noqa: N818 - not an error here: runtimes continue
    """The plugin has closed its connection, or has sent data that Go cannot read."""


class _GoReader:
    """Reads one logical connection of the mux, as Go's bufio.Reader does."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._buffered = b""

    async def read(self, size: int) -> bytes:
        result = bytearray()
        while len(result) < size:
            wanted = size - len(result)
            if not self._buffered:
                frame = await self.frames.get()
                if len(frame) > max(wanted, GO_BUFFER):
                    raise ConnectionLost(f"ENOMEM: a frame of {len(frame)} bytes where at most {wanted} were expected")
                self._buffered = frame
            result += self._buffered[:wanted]
            self._buffered = self._buffered[wanted:]
        return bytes(result)


class PluginConnection:
    """A connected plugin."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        serve: Callable[[str, bytes], Awaitable[bytes]],
        *,
        skip_ids: bool = False,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._serve = serve
        self._streams = {PLUGIN: _GoReader(), RUNTIME: _GoReader()}
        self._answers: dict[int, asyncio.Future[ttrpc_pb2.Response]] = {}
        self._next_id = 1
        self._id_step = 4 if skip_ids else 2  # Go skips an id after a message that is too large
        self.closed = asyncio.Event()
        self.reason = ""

    async def run(self) -> None:
        """Runs until either side closes the connection, or the plugin sends data that Go cannot read."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_answers(), name="nri answers")
                group.create_task(self._read_calls(group), name="nri calls")
                await self._read_frames()
        except* ConnectionLost as lost:
            self.reason = str(lost.exceptions[0])
        except* (OSError, asyncio.IncompleteReadError):
            pass  # the plugin, or we, closed the connection
        finally:
            self.close()

    def close(self) -> None:
        """Disconnects the plugin."""
        self._writer.transport.abort()
        self.closed.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.cancel()

    async def call(self, service: str, method: str, payload: bytes, seconds: float) -> bytes:
        """Calls the plugin. A plugin that does not answer in time is lost; an answer with an error raises CallError."""
        stream, self._next_id = self._next_id, self._next_id + self._id_step
        request = ttrpc_pb2.Request(
            service=service,
            method=method,
            payload=payload,
            timeout_nano=int(seconds * 1e9),
            metadata=[ttrpc_pb2.KeyValue(key="traceparent", value="00-0af7651916cd43dd8448eb211c80319c-00")],
        )
        answer: asyncio.Future[ttrpc_pb2.Response] = asyncio.get_running_loop().create_future()
        self._answers[stream] = answer
        closed = asyncio.ensure_future(self.closed.wait())
        try:
            self._write(PLUGIN, stream, REQUEST, request.SerializeToString())
            await asyncio.wait((answer, closed), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() or answer.cancelled():
                raise ConnectionLost(f"{method}: no answer in {seconds:g} s")
            response = answer.result()
        finally:
            closed.cancel()
            del self._answers[stream]
        if response.HasField("status"):
            raise CallError(response.status.code, response.status.message)
        return response.payload

    async def _read_frames(self) -> None:
        while True:
            connection, length = struct.unpack(">II", await self._reader.readexactly(8))
            frame = await self._reader.readexactly(length)
            if stream := self._streams.get(connection):
                stream.frames.put_nowait(frame)
                if stream.frames.qsize() > GO_QUEUE:
                    raise ConnectionLost("the queue of mux frames overflowed")

    async def _read_message(self, connection: int) -> tuple[int, int, bytes]:
        stream = self._streams[connection]
        length, stream_id, kind, flags = struct.unpack(">IIBB", await stream.read(10))
        if length > MAX_DATA or flags:
            raise ConnectionLost(f"a message of {length} bytes with flags {flags}")
        return stream_id, kind, await stream.read(length) if length else b""

    async def _read_answers(self) -> None:
        while True:
            stream_id, kind, data = await self._read_message(PLUGIN)
            if kind != RESPONSE:
                raise ConnectionLost(f"a message of type {kind} where an answer was due")
            answer = self._answers.get(stream_id)
            if answer is not None and not answer.done():
                answer.set_result(ttrpc_pb2.Response.FromString(data))

    async def _read_calls(self, group: asyncio.TaskGroup) -> None:
        last = 0
        while True:
            stream_id, kind, data = await self._read_message(RUNTIME)
            if kind != REQUEST or stream_id % 2 == 0 or stream_id <= last:
                raise ConnectionLost(f"message of type {kind}, stream {stream_id} after {last}")
            last = stream_id
            group.create_task(self._answer(stream_id, ttrpc_pb2.Request.FromString(data)), name="nri call")

    async def _answer(self, stream_id: int, request: ttrpc_pb2.Request) -> None:
        try:
            response = ttrpc_pb2.Response(
                payload=await self._serve(f"{request.service}/{request.method}", request.payload)
            )
        except CallError as error:
            # Go drops the payload of an answer that carries a status
            response = ttrpc_pb2.Response(status=ttrpc_pb2.Status(code=error.code, message=str(error)))
        self._write(RUNTIME, stream_id, RESPONSE, response.SerializeToString())

    def _write(self, connection: int, stream: int, kind: int, data: bytes) -> None:
        message = struct.pack(">IIBB", len(data), stream, kind, 0) + data
        for start in range(0, len(message), GO_BUFFER):
            frame = message[start : start + GO_BUFFER]
            self._writer.write(struct.pack(">II", connection, len(frame)) + frame)

"""ttrpc, the small relative of gRPC that NRI uses: one request, one response, matched by stream ids.

`Client` calls the runtime, `Server` answers the runtime's calls. Each has a logical connection of its own, whose bytes
are passed to `receive`.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import structlog
from google.protobuf.message import DecodeError

from dracpu_agent.runtime.mux import ConnectionEndedError, ProtocolError
from dracpu_agent.runtime.proto import ttrpc_pb2
from dracpu_api.errors import DriverError

MAX_DATA: Final = 4 * 1024 * 1024  # a serialized Request or Response

_HEADER: Final = struct.Struct(">IIBB")  # length of the data, stream id, type, flags
_NO_FLAGS: Final = 0  # flags belong to streaming calls, which NRI does not use

log = structlog.get_logger("runtime")

Write = Callable[[bytes, bytes], Awaitable[None]]  # a message's header and data


class MessageType(IntEnum):
    """The type of a message; NRI uses no others."""

    REQUEST = 1
    RESPONSE = 2


class Code(IntEnum):
    """The gRPC status codes in use."""

    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


class StatusError(DriverError):
    """The runtime or the agent answered a call with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Message:
    """One request or response on a connection."""

    stream: int
    type: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the runtime."""

    service: str
    method: str
    payload: bytes
    received: float  # in the loop's time
    timeout: float | None  # seconds that the caller waits; None: not sent


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a call."""

    payload: bytes
    sent: Callable[[], None] | None = None  # called after the answer has been sent


def message_header(stream: int, kind: MessageType, data: bytes) -> bytes:
    """The header that precedes the data of a message."""
    return _HEADER.pack(len(data), stream, kind, _NO_FLAGS)


class Decoder:
    """Splits a connection's bytes into messages; the bytes may arrive in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that these bytes complete."""
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= _HEADER.size:
            length, stream, kind, _ = _HEADER.unpack_from(self._buffer)
            if length > MAX_DATA:
                raise ProtocolError(f"the runtime announced a message of {length} bytes, the limit is {MAX_DATA}")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            messages.append(Message(stream, kind, bytes(self._buffer[_HEADER.size : end])))
            del self._buffer[:end]
        return messages


class Client:
    """Calls the other side; any number of calls at a time."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._decoder = Decoder()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next_stream = 1
        self._ended: str | None = None

    async def call(self, service: str, method: str, payload: bytes, within: float | None = None) -> bytes:
        """The answer's payload. Raises StatusError, TimeoutError or ConnectionEndedError.

        The timeout is sent with the call, so that the runtime can give up as well.
        """
        request = ttrpc_pb2.Request(service=service, method=method, payload=payload)
        if within is not None:
            request.timeout_nano = int(within * 1e9)
        data = request.SerializeToString()
        if len(data) > MAX_DATA:
            raise StatusError(Code.RESOURCE_EXHAUSTED, f"{method}: {len(data)} bytes, the limit is {MAX_DATA}")
        if self._ended is not None:
            raise ConnectionEndedError(self._ended)
        stream = self._next_stream
        self._next_stream += 2  # the calling side uses odd ids
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve_exception)
        self._waiting[stream] = answer
        try:
            async with asyncio.timeout(within):
                await self._write(message_header(stream, MessageType.REQUEST, data), data)
                return await answer
        finally:
            del self._waiting[stream]

    def receive(self, data: bytes) -> None:
        """Processes received bytes; raises ProtocolError when the connection has to end."""
        for message in self._decoder.feed(data):
            if message.type != MessageType.RESPONSE:
                raise ProtocolError(f"the runtime sent a message of type {message.type} instead of a response")
            answer = self._waiting.get(message.stream)
            if answer is None or answer.done():
                continue  # the caller has stopped waiting
            try:
                response = ttrpc_pb2.Response.FromString(message.data)
            except DecodeError as error:
                raise ProtocolError(f"the runtime sent a response that cannot be decoded: {error}") from error
            if response.status.code:
                answer.set_exception(StatusError(response.status.code, response.status.message))
            else:
                answer.set_result(response.payload)

    def end(self, reason: str) -> None:
        """Fails the pending calls and all later calls, as the connection has ended."""
        self._ended = reason
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionEndedError(reason))


class Server:
    """Answers the runtime's calls, each in a task of its own: answers may overtake each other."""

    def __init__(self, answer: Callable[[Call], Awaitable[Reply]], write: Write, group: asyncio.TaskGroup) -> None:
        self._answer = answer
        self._write = write
        self._group = group
        self._decoder = Decoder()
        self._last_stream = -1
        self._tasks: set[asyncio.Task[None]] = set()

    def is_answering_in(self, task: asyncio.Task[object] | None) -> bool:
        """Whether the task is answering a call."""
        return task in self._tasks

    def receive(self, data: bytes) -> None:
        """Processes received bytes; raises ProtocolError when the connection has to end."""
        for message in self._decoder.feed(data):
            if message.type != MessageType.REQUEST:
                raise ProtocolError(f"the runtime sent a message of type {message.type} instead of a request")
            received = asyncio.get_running_loop().time()
            task = self._group.create_task(self._serve(message, received), name=f"ttrpc call {message.stream}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, message: Message, received: float) -> None:
        sent: Callable[[], None] | None = None
        bug: Exception | None = None
        try:
            reply = await self._answer(self._call(message, received))
            response, sent = ttrpc_pb2.Response(payload=reply.payload), reply.sent
        except StatusError as error:
            response = _failure(error.code, str(error))
        except Exception as error:  # noqa: BLE001 - logged below
            bug = error
            response = _failure(Code.UNKNOWN, "internal error, see the log of the CPU driver's agent on this node")
        data = response.SerializeToString()
        if len(data) > MAX_DATA:
            # sending it would end the connection
            data = _failure(
                Code.RESOURCE_EXHAUSTED, f"the answer has {len(data)} bytes, the limit is {MAX_DATA}"
            ).SerializeToString()
            sent = None
        try:
            await self._write(message_header(message.stream, MessageType.RESPONSE, data), data)
        finally:
            if bug is not None:  # after the answer: a hook has 2 s, and logging a long traceback is slow
                log.error("call of the runtime failed", exc_info=bug)
        if sent is not None:
            sent()

    def _call(self, message: Message, received: float) -> Call:
        # Ids may skip numbers but never repeat or decrease. Tasks start in the order in which messages arrived.
        if message.stream % 2 == 0 or message.stream <= self._last_stream:
            raise StatusError(
                Code.INVALID_ARGUMENT, f"stream id {message.stream} is even, or not above {self._last_stream}"
            )
        self._last_stream = message.stream
        try:
            request = ttrpc_pb2.Request.FromString(message.data)
        except DecodeError as error:
            raise StatusError(Code.INVALID_ARGUMENT, f"the request cannot be decoded: {error}") from error
        timeout = request.timeout_nano / 1e9 if request.timeout_nano else None
        return Call(request.service, request.method, request.payload, received, timeout)


def _retrieve_exception(answer: asyncio.Future[bytes]) -> None:
    """Prevents asyncio's "never retrieved" log: a call whose write fails raises the write's error instead."""
    if not answer.cancelled():
        answer.exception()


def _failure(code: int, message: str) -> ttrpc_pb2.Response:
    return ttrpc_pb2.Response(status=ttrpc_pb2.Status(code=code, message=message))

"""Calls in both directions over a real socket, to an implementation that reads like the one in Go."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dracpu_agent.runtime.mux import PLUGIN_CONNECTION, RUNTIME_CONNECTION, ConnectionEndedError, Mux, ProtocolError
from dracpu_agent.runtime.proto import ttrpc_pb2
from dracpu_agent.runtime.ttrpc import (
    MAX_DATA,
    Call,
    Client,
    Code,
    MessageType,
    Reply,
    Server,
    StatusError,
    message_header,
)
from dracpu_sandbox.node.nri_wire import CallError, PluginConnection

Answer = Callable[[Call], Awaitable[Reply]]
Serve = Callable[[str, bytes], Awaitable[bytes]]


async def echo(call: Call) -> Reply:
    return Reply(call.payload)


async def echo_back(_: str, payload: bytes) -> bytes:
    return payload


@asynccontextmanager
async def connected(
    path: Path, answer: Answer = echo, serve: Serve = echo_back, *, skip_ids: bool = False
) -> AsyncIterator[tuple[PluginConnection, Client]]:
    """The runtime's end of a connection, and the client on our end."""
    accepted: asyncio.Future[PluginConnection] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = PluginConnection(reader, writer, serve, skip_ids=skip_ids)
        accepted.set_result(connection)
        await connection.run()

    async with await asyncio.start_unix_server(accept, path / "s"):
        mux = Mux(*await asyncio.open_unix_connection(path / "s"))
        client = Client(partial(mux.send, RUNTIME_CONNECTION))

        async def serve_our_end() -> None:
            async with asyncio.TaskGroup() as group:
                server = Server(answer, partial(mux.send, PLUGIN_CONNECTION), group)
                await mux.run({PLUGIN_CONNECTION: server.receive, RUNTIME_CONNECTION: client.receive})

        ours = asyncio.create_task(serve_our_end(), name="our end")
        theirs = await accepted
        try:
            yield theirs, client
        finally:
            theirs.close()
            await asyncio.wait((ours,))
            if not ours.cancelled():
                ours.exception()
            mux.close()


def payload_for(data_size: int) -> bytes:
    """A payload with which a serialized Response has this size."""
    envelope = data_size - 1
    while ttrpc_pb2.Response(payload=bytes(envelope)).ByteSize() > data_size:
        envelope -= 1
    assert ttrpc_pb2.Response(payload=bytes(envelope)).ByteSize() == data_size
    return bytes(envelope)


@pytest.mark.parametrize("message_size", [4096, 4097, 8192, MAX_DATA + 10])
async def test_answers_of_any_size_reach_the_runtime(tmp_path: Path, message_size: int) -> None:
    payload = payload_for(message_size - 10)

    async def answer(_: Call) -> Reply:
        return Reply(payload)

    async with connected(tmp_path, answer) as (runtime, _):
        assert await runtime.call("service", "Method", b"", 10) == payload


async def test_an_answer_above_the_limit_is_an_error_and_the_connection_stays_open(tmp_path: Path) -> None:
    was_sent: list[str] = []

    async def answer(call: Call) -> Reply:
        return Reply(bytes(MAX_DATA) if call.method == "Large" else b"ok", sent=lambda: was_sent.append(call.method))

    async with connected(tmp_path, answer) as (runtime, _):
        with pytest.raises(CallError) as refused:
            await runtime.call("service", "Large", b"", 10)
        assert refused.value.code == Code.RESOURCE_EXHAUSTED
        assert await runtime.call("service", "Small", b"", 10) == b"ok"
    assert was_sent == ["Small"]


@pytest.mark.parametrize("size", [0, 3900, 4096, 10_000, MAX_DATA - 100])
async def test_calls_of_any_size_reach_the_runtime_and_come_back(tmp_path: Path, size: int) -> None:
    async with connected(tmp_path) as (_, client):
        assert await client.call("service", "Method", b"x" * size, 10) == b"x" * size


async def test_a_call_above_the_limit_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        with pytest.raises(StatusError) as refused:
            await client.call("service", "Method", bytes(MAX_DATA))
        assert refused.value.code == Code.RESOURCE_EXHAUSTED
        assert await client.call("service", "Method", b"x") == b"x"


async def test_a_large_answer_and_many_small_ones_do_not_mix(tmp_path: Path) -> None:
    async with connected(tmp_path) as (runtime, client):
        payloads = [bytes([number]) * (300_000 if number % 3 == 0 else number) for number in range(1, 60)]
        theirs = [runtime.call("service", "Method", payload, 30) for payload in payloads]
        ours = [client.call("service", "Method", payload, 30) for payload in payloads]
        assert await asyncio.gather(*theirs, *ours) == payloads * 2


async def test_a_slow_call_does_not_hold_up_others(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def answer(call: Call) -> Reply:
        if call.method == "Slow":
            await release.wait()
        return Reply(call.method.encode())

    async with connected(tmp_path, answer) as (runtime, _):
        slow = asyncio.create_task(runtime.call("service", "Slow", b"", 30))
        assert await runtime.call("service", "Fast", b"", 30) == b"Fast"
        assert not slow.done()
        release.set()
        assert await slow == b"Slow"


async def test_ids_may_skip_numbers(tmp_path: Path) -> None:
    async with connected(tmp_path, skip_ids=True) as (runtime, _):
        assert [await runtime.call("service", "Method", b"%d" % n, 10) for n in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("ids", "codes"), [([2], [3]), ([1, 1], [0, 3]), ([5, 3, 7], [0, 3, 0]), ([0], [3])], ids=str)
async def test_even_and_decreasing_ids_are_refused(ids: list[int], codes: list[int]) -> None:
    answers: dict[int, list[int]] = {}

    async def write(header: bytes, data: bytes) -> None:
        stream: int = struct.unpack(">IIBB", header)[1]
        answers.setdefault(stream, []).append(ttrpc_pb2.Response.FromString(data).status.code)

    request = ttrpc_pb2.Request(service="service", method="Method").SerializeToString()
    async with asyncio.TaskGroup() as group:
        server = Server(echo, write, group)
        for stream in ids:
            server.receive(struct.pack(">IIBB", len(request), stream, 1, 0) + request)
    expected: dict[int, list[int]] = {}
    for stream, code in zip(ids, codes, strict=True):
        expected.setdefault(stream, []).append(code)
    assert answers == expected


async def test_a_call_carries_the_callers_timeout(tmp_path: Path) -> None:
    calls: list[Call] = []

    async def answer(call: Call) -> Reply:
        calls.append(call)
        return Reply(b"")

    async with connected(tmp_path, answer) as (runtime, _):
        assert await runtime.call("service", "Method", b"", 2.5) == b""
    assert [(call.service, call.method, call.timeout) for call in calls] == [("service", "Method", 2.5)]


@pytest.mark.parametrize(("within", "sent"), [(None, 0), (1.5, 1_500_000_000)])
async def test_our_timeout_is_sent_to_the_runtime(within: float | None, sent: int) -> None:
    async def write(_: bytes, data: bytes) -> None:
        assert ttrpc_pb2.Request.FromString(data).timeout_nano == sent
        client.receive(struct.pack(">IIBB", 0, 1, 2, 0))

    client = Client(write)
    assert await client.call("service", "Method", b"", within) == b""


async def test_an_internal_error_is_answered_without_details(tmp_path: Path) -> None:
    async def answer(call: Call) -> Reply:
        raise KeyError("secret")

    async with connected(tmp_path, answer) as (runtime, _):
        for _ in range(2):  # the connection stays open
            with pytest.raises(CallError, match="internal error") as failed:
                await runtime.call("service", "Method", b"", 10)
            assert "secret" not in str(failed.value)


async def test_an_internal_error_is_answered_before_it_is_logged() -> None:
    """The runtime waits 2 s for an answer; on a busy machine, logging the traceback may take that long."""
    logged_before: list[int] = []

    async def answer(call: Call) -> Reply:
        raise KeyError("bug")

    async def write(_: bytes, data: bytes) -> None:
        logged_before.append(len(logs))

    request = ttrpc_pb2.Request(service="service", method="Method").SerializeToString()
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as group:
            Server(answer, write, group).receive(message_header(1, MessageType.REQUEST, request) + request)
    assert logged_before == [0]
    assert [entry["event"] for entry in logs] == ["call of the runtime failed"]


async def test_an_error_of_the_runtime_is_raised_with_its_message(tmp_path: Path) -> None:
    async def serve(_: str, __: bytes) -> bytes:
        raise CallError(2, "NRI update of some containers failed")

    async with connected(tmp_path, serve=serve) as (_, client):
        with pytest.raises(StatusError, match="some containers") as failed:
            await client.call("service", "Method", b"")
        assert failed.value.code == 2


async def test_a_late_answer_is_ignored(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def serve(method: str, payload: bytes) -> bytes:
        if payload == b"late":
            await release.wait()
        return payload

    async with connected(tmp_path, serve=serve) as (_, client):
        with pytest.raises(TimeoutError):
            await client.call("service", "Method", b"late", 0.01)
        release.set()
        assert await client.call("service", "Method", b"next", 10) == b"next"


async def test_pending_and_later_calls_fail_when_the_connection_ends(tmp_path: Path) -> None:
    called = asyncio.Event()

    async def serve(_: str, __: bytes) -> bytes:
        called.set()
        await asyncio.Event().wait()
        return b""

    async with connected(tmp_path, serve=serve) as (_, client):
        waiting = asyncio.create_task(client.call("service", "Method", b""))
        await called.wait()
        client.end("the runtime restarts")
        for call in (waiting, client.call("service", "Method", b"")):
            with pytest.raises(ConnectionEndedError, match="restarts"):
                await call


@pytest.mark.parametrize("kind", [1, 3])
async def test_a_message_other_than_a_response_on_our_connection_is_a_protocol_error(kind: int) -> None:
    async def write(_: bytes, __: bytes) -> None:
        return

    with pytest.raises(ProtocolError, match=f"type {kind}"):
        Client(write).receive(struct.pack(">IIBB", 0, 1, kind, 0))


@pytest.mark.parametrize("kind", [2, 3])
async def test_a_message_other_than_a_request_on_the_runtimes_connection_is_a_protocol_error(kind: int) -> None:
    async def write(_: bytes, __: bytes) -> None:
        return

    async with asyncio.TaskGroup() as group:
        with pytest.raises(ProtocolError, match=f"type {kind}"):
            Server(echo, write, group).receive(struct.pack(">IIBB", 0, 1, kind, 0))

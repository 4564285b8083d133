"""The HTTP client's answers and connections, with servers that answer slowly, oddly or incompletely."""

import asyncio
import contextlib
import socket
import struct

import pytest
from scripted_http import CHUNKED, EMPTY, HELLO, LARGE, OK, Peer, answering, ask, hang_up, scripted, talking_to

from dracpu_agent.http1.client import Answer, ConnectError, HttpClient, Limits
from dracpu_agent.http1.exchange import AnswerTooLargeError
from dracpu_agent.http1.message import ConnectionLostError, HttpError, MalformedAnswerError

# ---- answers


@pytest.mark.parametrize(
    "answer",
    [
        HELLO,
        CHUNKED + b"2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + HELLO,
    ],
    ids=["sized", "chunked", "after informational answers"],
)
async def test_an_answer_may_arrive_byte_by_byte(answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.request()
            await peer.send_bytewise(answer)
        await peer.closed()

    async with scripted(script) as server, talking_to(server.port) as client:
        for _ in range(2):
            assert (await ask(client)).body == b"hello"
        assert server.connections == 1


async def test_a_request_has_its_path_headers_and_body() -> None:
    async def script(peer: Peer) -> None:
        received = await peer.request()
        assert received.line == "PATCH /a/b?c=d HTTP/1.1"
        assert received.headers == {
            "Host": f"127.0.0.1:{server.port}",
            "Accept-Encoding": "identity",
            "X-One": "1",
            "Content-Length": "20000000",
        }
        assert received.body == LARGE
        await peer.send(b"HTTP/1.1 409 Conflict\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno")
        await peer.closed()

    async with scripted(script) as server, talking_to(server.port) as client:
        answer = await client.request("PATCH", "/a/b?c=d", headers={"X-One": "1"}, body=LARGE, seconds=20)
        assert answer == Answer(409, {"retry-after": "7", "content-length": "2"}, b"no")


async def test_the_path_of_the_servers_url_is_a_prefix_of_all_paths() -> None:
    async def script(peer: Peer) -> None:
        assert (await peer.request()).line == "GET /clusters/one/x HTTP/1.1"
        await peer.send(EMPTY)

    async with scripted(script) as server:
        client = HttpClient(f"http://127.0.0.1:{server.port}/clusters/one/")
        await ask(client)
        await client.close()


async def test_after_an_answer_without_a_body_the_connection_is_reused() -> None:
    bodiless = [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"]
    async with (
        scripted(answering(*bodiless, OK + b"Content-Length: 9\r\n\r\n", HELLO)) as server,
        talking_to(server.port) as client,
    ):
        assert [(await ask(client)).status, (await ask(client)).status] == [204, 304]
        assert (await ask(client, "HEAD")).headers == {"content-length": "9"}
        assert (await ask(client)).body == b"hello"
        assert server.connections == 1


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send_bytewise(OK + b"\r\nhello")
        peer.end()

    async with scripted(script, answering(EMPTY)) as server, talking_to(server.port) as client:
        assert (await ask(client)).body == b"hello"
        assert (await ask(client)).body == b""
        assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", ConnectionLostError),
        (b"HTTP/1.1 200", ConnectionLostError),
        (OK + b"Content-Length: 6\r\n\r\nhello", ConnectionLostError),
        (CHUNKED + b"5\r\nhello\r\n", ConnectionLostError),
        (CHUNKED + b"5\r\nhello\r\n0\r\n", ConnectionLostError),
        (b"\x15\x03\x01\x00\x02\x02\x46", MalformedAnswerError),
        (CHUNKED + b"what?\r\n", MalformedAnswerError),
        (OK + b"Content-Length: 6\r\nContent-Length: 5\r\n\r\nhello", MalformedAnswerError),
    ],
)
async def test_an_incomplete_or_malformed_answer_is_an_error(answer: bytes, kind: type[HttpError]) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)
        peer.end()

    async with scripted(script) as server, talking_to(server.port) as client:
        with pytest.raises(kind):
            await ask(client)
        assert server.connections == 1, "a request that fails on a new connection is not repeated"


async def test_the_size_of_an_answer_is_limited() -> None:
    async with (
        scripted(answering(HELLO, OK + b"Content-Length: 6\r\n\r\nhello!")) as server,
        talking_to(server.port, Limits(answer_bytes=5)) as client,
    ):
        assert (await ask(client)).body == b"hello"
        with pytest.raises(AnswerTooLargeError, match="5 bytes"):
            await ask(client)


async def test_a_server_may_answer_before_it_has_read_the_whole_request() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await peer.request()

    async with scripted(script, answering(HELLO)) as server, talking_to(server.port) as client:
        assert (await ask(client, "POST", LARGE)).status == 413
        assert (await ask(client, "POST", b"")).body == b"hello"
        assert server.connections == 2, "the connection is not reused, as the request was not sent to the end"


# ---- connections


async def test_concurrent_requests_use_separate_connections_up_to_a_limit() -> None:
    waiting = asyncio.Barrier(3)

    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.request()
            await waiting.wait()  # for both connections and the test
            await peer.send(HELLO)
        await peer.closed()

    async with scripted(script) as server, talking_to(server.port, Limits(connections=2)) as client:
        asking = [asyncio.create_task(ask(client)) for _ in range(4)]
        for _ in range(2):
            await waiting.wait()
        assert [answer.body for answer in await asyncio.gather(*asking)] == [b"hello"] * 4
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        HELLO + b"HTTP/1.1 403 Forbidden\r\n\r\n",
    ],
    ids=["close", "HTTP/1.0", "unrequested bytes"],
)
async def test_a_connection_is_not_reused_after_such_an_answer(answer: bytes) -> None:
    async with scripted(answering(answer)) as server, talking_to(server.port) as client:
        for number in (1, 2):
            assert (await ask(client)).body == b"hello"
            assert server.connections == number


@pytest.mark.parametrize("unrequested", [b"", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
async def test_an_idle_connection_is_not_reused_after_the_server_closed_it_or_sent_data(unrequested: bytes) -> None:
    idle, closed = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HELLO)
        await idle.wait()
        await peer.send(unrequested)
        if not unrequested:
            peer.end()
        await peer.closed()
        closed.set()

    async with scripted(script, answering(HELLO)) as server, talking_to(server.port) as client:
        await ask(client)
        idle.set()
        await closed.wait()
        assert (await ask(client, "POST", b"")).status == 200


async def test_idle_connections_are_closed_after_a_time() -> None:
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HELLO)
        await peer.closed()
        closed.set()

    async with scripted(script) as server, talking_to(server.port, Limits(idle_seconds=0)) as client:
        await ask(client)
        await closed.wait()


async def test_a_reused_connection_is_not_closed_by_its_former_idle_time() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HELLO)
        await peer.request()
        await asyncio.sleep(0.05)
        await peer.send(HELLO)
        await peer.closed()

    async with scripted(script) as server, talking_to(server.port, Limits(idle_seconds=0.02)) as client:
        assert [(await ask(client, "POST")).body for _ in range(2)] == [b"hello"] * 2


async def answer_once_then_hang_up(peer: Peer) -> None:
    await peer.request()
    await peer.send(HELLO)
    await peer.request()
    peer.end()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_reading_request_is_repeated_when_a_reused_connection_ends_without_an_answer(method: str) -> None:
    async with (
        scripted(answer_once_then_hang_up, answering(EMPTY)) as server,
        talking_to(server.port) as client,
    ):
        await ask(client)
        assert (await ask(client, method)).status == 200
        assert server.connections == 2


async def test_a_request_is_repeated_only_once() -> None:
    async with scripted(answer_once_then_hang_up, hang_up) as server, talking_to(server.port) as client:
        await ask(client)
        with pytest.raises(ConnectionLostError, match="before the answer"):
            await ask(client)
        assert server.connections == 2


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_writing_request_that_was_sent_is_not_repeated(method: str) -> None:
    async with scripted(answer_once_then_hang_up) as server, talking_to(server.port) as client:
        await ask(client)
        with pytest.raises(ConnectionLostError, match="before the answer"):
            await ask(client, method, b"body")
        assert server.connections == 1


async def test_a_request_is_not_repeated_after_its_answer_has_begun() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HELLO)
        await peer.request()
        await peer.send(b"H")
        peer.end()

    async with scripted(script) as server, talking_to(server.port) as client:
        await ask(client)
        with pytest.raises(ConnectionLostError, match="during the answer"):
            await ask(client)
        assert server.connections == 1


async def test_a_request_that_could_not_be_sent_is_sent_on_a_new_connection() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)

        async def answer_once() -> socket.socket:
            accepted, _ = await loop.sock_accept(listener)
            await loop.sock_recv(accepted, 65536)
            await loop.sock_sendall(accepted, HELLO)
            return accepted

        async with talking_to(listener.getsockname()[1]) as client:
            serving = asyncio.create_task(answer_once())
            await ask(client)
            accepted = await serving
            serving = asyncio.create_task(answer_once())
            # a reset, which the client cannot notice before it writes
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            assert (await ask(client, "POST", b"body")).body == b"hello"
            (await serving).close()


async def test_a_reset_connection_is_reported() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(OK)
        peer.reset()  # with the request unread

    async with scripted(script) as server, talking_to(server.port) as client:
        with pytest.raises(ConnectionLostError, match="was lost: .*reset"):
            await ask(client, "POST", LARGE)


async def test_a_failed_connection_is_reported_with_its_address_and_cause() -> None:
    async with scripted(hang_up) as server:
        pass
    async with talking_to(server.port) as client:
        with pytest.raises(ConnectError, match=f"cannot connect to 127.0.0.1:{server.port}: Connection refused"):
            await ask(client)
    client = HttpClient("http://does-not-exist.invalid")
    with pytest.raises(ConnectError, match="does-not-exist"):
        await ask(client)
    await client.close()

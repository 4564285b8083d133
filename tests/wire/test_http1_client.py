"""The HTTP client against servers that answer slowly, oddly or half: answers, and the connections that bring them."""

import asyncio
import contextlib
import socket
import struct

import pytest
from scripted_http import CHUNKED, EMPTY, HELLO, LARGE, OK, Peer, answering, ask, hang_up, scripted, talking_to

from dracpu_agent.http1.client import Answer, AnswerTooLargeError, ConnectError, HttpClient, Limits
from dracpu_agent.http1.message import ConnectionLostError, HttpError, MalformedAnswerError

# ---- answers


@pytest.mark.parametrize(
    "answer",
    [
        HELLO,
        CHUNKED + b"2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + HELLO,
    ],
    ids=["sized", "chunked", "after informational ones"],
)
async def test_an_answer_may_come_byte_by_byte(answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.request()
            await peer.dribble(answer)
        await peer.gone()

    async with scripted(script) as server, talking_to(server.port) as client:
        for _ in range(2):
            assert (await ask(client)).body == b"hello"
        assert server.connections == 1


async def test_a_request_arrives_as_it_was_meant() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        assert asked.line == "PATCH /a/b?c=d HTTP/1.1"
        assert asked.headers == {
            "Host": f"127.0.0.1:{server.port}",
            "Accept-Encoding": "identity",
            "X-One": "1",
            "Content-Length": "20000000",
        }
        assert asked.body == LARGE
        await peer.say(b"HTTP/1.1 409 Conflict\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno")
        await peer.gone()

    async with scripted(script) as server, talking_to(server.port) as client:
        answer = await client.request("PATCH", "/a/b?c=d", headers={"X-One": "1"}, body=LARGE, seconds=20)
        assert answer == Answer(409, {"retry-after": "7", "content-length": "2"}, b"no")


async def test_the_path_of_the_address_stands_before_all_others() -> None:
    async def script(peer: Peer) -> None:
        assert (await peer.request()).line == "GET /clusters/one/x HTTP/1.1"
        await peer.say(EMPTY)

    async with scripted(script) as server:
        client = HttpClient(f"http://127.0.0.1:{server.port}/clusters/one/")
        await ask(client)
        await client.close()


async def test_answers_without_a_body_leave_the_connection_to_the_next() -> None:
    nothing = [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"]
    async with (
        scripted(answering(*nothing, OK + b"Content-Length: 9\r\n\r\n", HELLO)) as server,
        talking_to(server.port) as client,
    ):
        assert [(await ask(client)).status, (await ask(client)).status] == [204, 304]
        assert (await ask(client, "HEAD")).headers == {"content-length": "9"}
        assert (await ask(client)).body == b"hello"
        assert server.connections == 1


async def test_a_body_may_last_until_the_connection_ends() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.dribble(OK + b"\r\nhello")
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
async def test_half_an_answer_is_an_error(answer: bytes, kind: type[HttpError]) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer)
        peer.end()

    async with scripted(script) as server, talking_to(server.port) as client:
        with pytest.raises(kind):
            await ask(client)
        assert server.connections == 1, "what ends on a new connection is not tried again"


async def test_an_answer_has_a_largest_size() -> None:
    async with (
        scripted(answering(HELLO, OK + b"Content-Length: 6\r\n\r\nhello!")) as server,
        talking_to(server.port, Limits(answer_bytes=5)) as client,
    ):
        assert (await ask(client)).body == b"hello"
        with pytest.raises(AnswerTooLargeError, match="5 bytes"):
            await ask(client)


async def test_a_server_may_refuse_before_it_has_read_everything() -> None:
    async def script(peer: Peer) -> None:
        await peer.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await peer.request()

    async with scripted(script, answering(HELLO)) as server, talking_to(server.port) as client:
        assert (await ask(client, "POST", LARGE)).status == 413
        assert (await ask(client, "POST", b"")).body == b"hello"
        assert server.connections == 2, "the rest of the request stood in the way of another one"


# ---- connections


async def test_requests_at_a_time_have_connections_of_their_own_and_wait_when_there_are_too_many() -> None:
    waiting = asyncio.Barrier(3)

    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.request()
            await waiting.wait()  # two connections, and the test
            await peer.say(HELLO)
        await peer.gone()

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
    ids=["close", "HTTP/1.0", "more than was asked for"],
)
async def test_some_connections_serve_once(answer: bytes) -> None:
    async with scripted(answering(answer)) as server, talking_to(server.port) as client:
        for number in (1, 2):
            assert (await ask(client)).body == b"hello"
            assert server.connections == number


@pytest.mark.parametrize("last_words", [b"", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
async def test_a_resting_connection_that_ends_or_speaks_is_not_used_again(last_words: bytes) -> None:
    rested, left = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(HELLO)
        await rested.wait()
        await peer.say(last_words)
        if not last_words:
            peer.end()
        await peer.gone()
        left.set()

    async with scripted(script, answering(HELLO)) as server, talking_to(server.port) as client:
        await ask(client)
        rested.set()
        await left.wait()
        assert (await ask(client, "POST", b"")).status == 200


async def test_connections_do_not_rest_for_ever() -> None:
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(HELLO)
        await peer.gone()
        left.set()

    async with scripted(script) as server, talking_to(server.port, Limits(idle_seconds=0)) as client:
        await ask(client)
        await left.wait()


async def test_the_end_of_a_rest_that_was_cut_short_harms_nobody() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(HELLO)
        await peer.request()
        await asyncio.sleep(0.05)
        await peer.say(HELLO)
        await peer.gone()

    async with scripted(script) as server, talking_to(server.port, Limits(idle_seconds=0.02)) as client:
        assert [(await ask(client, "POST")).body for _ in range(2)] == [b"hello"] * 2


async def first_answered_then_hung_up(peer: Peer) -> None:
    await peer.request()
    await peer.say(HELLO)
    await peer.request()
    peer.end()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_may_be_repeated_is_when_a_kept_connection_ends_without_an_answer(method: str) -> None:
    async with (
        scripted(first_answered_then_hung_up, answering(EMPTY)) as server,
        talking_to(server.port) as client,
    ):
        await ask(client)
        assert (await ask(client, method)).status == 200
        assert server.connections == 2


async def test_it_is_repeated_once() -> None:
    async with scripted(first_answered_then_hung_up, hang_up) as server, talking_to(server.port) as client:
        await ask(client)
        with pytest.raises(ConnectionLostError, match="before the answer"):
            await ask(client)
        assert server.connections == 2


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_what_may_have_been_done_is_not_repeated(method: str) -> None:
    async with scripted(first_answered_then_hung_up) as server, talking_to(server.port) as client:
        await ask(client)
        with pytest.raises(ConnectionLostError, match="before the answer"):
            await ask(client, method, b"body")
        assert server.connections == 1


async def test_what_was_being_answered_is_not_repeated() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(HELLO)
        await peer.request()
        await peer.say(b"H")
        peer.end()

    async with scripted(script) as server, talking_to(server.port) as client:
        await ask(client)
        with pytest.raises(ConnectionLostError, match="within the answer"):
            await ask(client)
        assert server.connections == 1


async def test_what_could_not_be_sent_is_sent_on_a_new_connection_whatever_it_is() -> None:
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
            # a reset, and no chance for the client to see it before it writes
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            assert (await ask(client, "POST", b"body")).body == b"hello"
            (await serving).close()


async def test_a_connection_that_is_reset_says_so() -> None:
    async def script(peer: Peer) -> None:
        await peer.say(OK)
        peer.reset()  # with the request unread

    async with scripted(script) as server, talking_to(server.port) as client:
        with pytest.raises(ConnectionLostError, match="broke.*reset"):
            await ask(client, "POST", LARGE)


async def test_nobody_there() -> None:
    async with scripted(hang_up) as server:
        pass
    async with talking_to(server.port) as client:
        with pytest.raises(ConnectError, match=f"cannot connect to 127.0.0.1:{server.port}: Connection refused"):
            await ask(client)
    client = HttpClient("http://does-not-exist.invalid")
    with pytest.raises(ConnectError, match="does-not-exist"):
        await ask(client)
    await client.close()

"""The HTTP client's time limits, streams, TLS and addresses, and how the API client reports its errors."""

import asyncio
import socket
import ssl
from functools import partial
from pathlib import Path

import pytest
from background import background
from scripted_http import CHUNKED, EMPTY, HELLO, LARGE, OK, Peer, answering, ask, hang_up, scripted, talking_to
from tls_material import CERTIFICATE, KEY

from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.errors import ClusterConfigError
from dracpu_agent.http1.client import ClosedError, ConnectError, HttpClient, HttpTimeoutError, Limits
from dracpu_agent.http1.message import ConnectionLostError, HttpError, RequestError
from dracpu_agent.http1.origin import OriginError
from dracpu_api.errors import ApiError, UnavailableError
from dracpu_api.resources import NODES


@pytest.fixture
def own_tls(tmp_path: Path) -> ssl.SSLContext:
    (tmp_path / "server.pem").write_text(CERTIFICATE + KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    return context


# ---- time, cancellation, closing


async def test_an_answer_that_takes_too_long_is_a_timeout() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + b"Content-Length: 5\r\n\r\nhell")
        await peer.closed()

    async with scripted(script) as server, talking_to(server.port) as client:
        with pytest.raises(HttpTimeoutError, match=r"no answer within 0\.05 s"):
            await ask(client, seconds=0.05)


async def test_the_time_limit_includes_waiting_for_a_free_connection() -> None:
    async with (
        scripted(answering(CHUNKED)) as server,
        talking_to(server.port, Limits(connections=1)) as client,
        client.stream("GET", "/x", headers={}, silence=20),
    ):
        with pytest.raises(HttpTimeoutError):
            await ask(client, seconds=0.01)


async def test_the_connection_of_a_cancelled_request_is_not_reused() -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + b"Content-Length: 5\r\n\r\nhell")
        asked.set()
        await peer.closed()
        closed.set()

    async with (
        scripted(script, answering(HELLO)) as server,
        talking_to(server.port, Limits(connections=1)) as client,
    ):
        async with background(ask(client)):
            await asked.wait()
        await closed.wait()
        assert (await ask(client)).body == b"hello"


async def test_closing_the_client_fails_exchanges_in_progress_and_waiting_ones() -> None:
    async with (
        scripted(answering(OK + b"\r\na body that ends with the connection")) as server,
        talking_to(server.port, Limits(connections=2)) as client,
        client.stream("GET", "/x", headers={}, silence=20) as answer,
    ):
        assert await anext(answer)
        asking, waiting = asyncio.create_task(ask(client)), asyncio.create_task(ask(client))
        await server.until_connected(2)
        await client.close()
        with pytest.raises(ConnectionLostError, match="the client closed it"):
            await anext(answer)
        with pytest.raises(HttpError):
            await asking
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await ask(client)


async def test_closing_the_client_closes_its_sockets() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with talking_to(listener.getsockname()[1]) as client:
            asking = asyncio.create_task(ask(client))
            accepted, _ = await loop.sock_accept(listener)
            await loop.sock_recv(accepted, 65536)
            await loop.sock_sendall(accepted, HELLO)
            await asking
            await client.close()
            accepted.setblocking(False)
            assert accepted.recv(1) == b""
            accepted.close()


async def test_a_connection_that_opens_after_the_client_was_closed_is_not_used(own_tls: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        client = HttpClient(url, tls=partial(ssl.create_default_context, cadata=CERTIFICATE))
        asking = asyncio.create_task(ask(client))
        accepted, _ = await loop.sock_accept(listener)
        await client.close()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted, ssl=own_tls)
        with pytest.raises(ClosedError):
            await asking
        transport.abort()


# ---- streams


async def test_a_stream_is_read_as_it_arrives() -> None:
    first_received = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send_bytewise(CHUNKED + b"3\r\none\r\n")
        await first_received.wait()
        await peer.send_bytewise(b"3\r\ntwo\r\n0\r\n\r\n")
        await peer.request()
        await peer.send(HELLO)
        await peer.closed()

    async with scripted(script) as server, talking_to(server.port) as client:
        async with client.stream("GET", "/x", headers={}, silence=20) as answer:
            assert answer.status == 200
            received = b""
            async for piece in answer:
                received += piece
                if received == b"one":
                    first_received.set()
            assert received == b"onetwo"
        assert (await ask(client)).body == b"hello"
        assert server.connections == 1, "the connection of a stream that was read to its end is reused"


async def test_bytes_after_the_end_of_a_stream_are_not_taken_for_the_next_answer() -> None:
    read, sent = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HELLO)
        await read.wait()
        await peer.send(HELLO)
        sent.set()
        await peer.closed()

    async with scripted(script, answering(EMPTY)) as server, talking_to(server.port) as client:
        async with client.stream("GET", "/x", headers={}, silence=20) as answer:
            await answer.read()
            read.set()
            await sent.wait()
            for _ in range(3):  # until the client has read the bytes from the socket
                await asyncio.sleep(0)
        assert (await ask(client, "POST", b"")).body == b""


async def test_the_connection_of_a_stream_that_was_not_read_to_its_end_is_not_reused() -> None:
    async with (
        scripted(answering(CHUNKED + b"3\r\none\r\n"), answering(HELLO)) as server,
        talking_to(server.port) as client,
    ):
        async with client.stream("GET", "/x", headers={}, silence=20) as answer:
            assert await anext(answer) == b"one"
        assert (await ask(client)).body == b"hello"


async def test_the_rest_of_a_stream_can_be_read_at_once() -> None:
    async with (
        scripted(answering(HELLO)) as server,
        talking_to(server.port) as client,
        client.stream("GET", "/x", headers={}, silence=20) as answer,
    ):
        assert await answer.read() == b"hello"


@pytest.mark.parametrize("sent", [b"", OK, CHUNKED + b"3\r\none\r\n"], ids=["nothing", "half a head", "a piece"])
async def test_a_stream_on_which_nothing_arrives_is_a_timeout(sent: bytes) -> None:
    async def read(client: HttpClient) -> None:
        async with client.stream("GET", "/x", headers={}, silence=0.05) as answer:
            async for piece in answer:
                assert piece == b"one"

    async with scripted(answering(sent)) as server, talking_to(server.port) as client:
        with pytest.raises(HttpTimeoutError, match=r"sent nothing for 0\.05 s"):
            await read(client)


async def test_a_server_that_sends_faster_than_the_client_reads_has_to_wait() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + b"Content-Length: %d\r\n\r\n" % len(LARGE) + LARGE)
        sent.set()
        await peer.closed()

    sent = asyncio.Event()
    async with (
        scripted(script) as server,
        talking_to(server.port) as client,
        client.stream("GET", "/x", headers={}, silence=20) as answer,
    ):
        size = len(await anext(answer))
        for _ in range(1000):  # enough for the whole answer, if reading did not pause
            await asyncio.sleep(0)
        assert not sent.is_set()
        async for piece in answer:
            size += len(piece)
        assert size == len(LARGE)


# ---- TLS and addresses


async def test_tls_connections_are_reused(own_tls: ssl.SSLContext) -> None:
    trusting = partial(ssl.create_default_context, cadata=CERTIFICATE)
    async with scripted(answering(HELLO, CHUNKED + b"0\r\n\r\n"), tls=own_tls) as server:
        for name in (None, "api.test"):
            client = HttpClient(f"https://127.0.0.1:{server.port}", tls=trusting, server_name=name)
            assert [(await ask(client)).body, (await ask(client)).body] == [b"hello", b""]
            await client.close()
        assert server.connections == 2


@pytest.mark.parametrize(
    ("authority", "name"), [(None, None), (CERTIFICATE, "other.test")], ids=["unknown authority", "another name"]
)
async def test_no_request_is_sent_to_a_server_without_a_trusted_certificate(
    own_tls: ssl.SSLContext, authority: str | None, name: str | None
) -> None:
    tls = partial(ssl.create_default_context, cadata=authority) if authority else None
    async with scripted(hang_up, tls=own_tls) as server:
        client = HttpClient(f"https://127.0.0.1:{server.port}", tls=tls, server_name=name)
        with pytest.raises(ConnectError, match="certificate is not trusted"):
            await ask(client)
        await client.close()
        assert server.connections == 0


async def test_a_server_without_tls_is_reported() -> None:
    async def end(peer: Peer) -> None:
        peer.end()

    async def send(peer: Peer) -> None:
        await peer.send(HELLO)
        await peer.rest()

    async def wait(peer: Peer) -> None:
        await peer.rest()

    for script, kind, seconds in ((end, ConnectError, 20), (send, ConnectError, 20), (wait, HttpTimeoutError, 0.2)):
        async with scripted(script) as server:
            client = HttpClient(f"https://127.0.0.1:{server.port}", limits=Limits(connect_seconds=seconds))
            with pytest.raises(kind, match=r"127\.0\.0\.1:\d+(: \S+| within 0\.2 s)"):
                await ask(client)
            await client.close()


async def test_ipv6_addresses_are_written_in_brackets() -> None:
    async def script(peer: Peer) -> None:
        assert (await peer.request()).headers["Host"] == f"[::1]:{server.port}"
        await peer.send(EMPTY)

    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with scripted(script, host="::1") as server:
        client = HttpClient(f"http://[::1]:{server.port}")
        await ask(client)
        await client.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:443",
        "ftp://host",
        "https://",
        "https://host:port",
        "https://host:99999",
        "https://user:secret@host",
        "https://host?a=b",
        "https://host#a",
        "https://ho st",
        "https://hôst",
        "https://[::1",
    ],
)
async def test_an_invalid_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(OriginError) as caught:
        HttpClient(url)
    assert "secret" not in str(caught.value)


async def test_a_header_with_a_line_break_is_never_sent() -> None:
    async with scripted(hang_up) as server, talking_to(server.port) as client:
        with pytest.raises(RequestError) as caught:
            await client.request("GET", "/", headers={"Authorization": "Bearer secret\r\nX: y"}, seconds=5)
        assert "secret" not in str(caught.value) + repr(caught.value)
        assert server.connections == 0


# ---- as the API client reports it


async def test_an_invalid_address_is_a_configuration_error() -> None:
    with pytest.raises(ClusterConfigError, match="host"):
        ApiClient(ApiAccess("https://user:secret@host"), version="1")


async def test_an_invalid_token_is_a_temporary_error_that_does_not_contain_the_token() -> None:
    access = ApiAccess("http://127.0.0.1:1", token=lambda: "sec\nret")
    async with ApiClient(access, version="1") as client:
        with pytest.raises(UnavailableError, match="Authorization") as caught:
            await client.get(NODES, "n1")
    assert "ret" not in str(caught.value) + repr(caught.value)


async def test_a_timeout_has_another_reason_than_a_lost_connection() -> None:
    async with scripted(answering(b""), hang_up) as server:
        client = ApiClient(ApiAccess(f"http://127.0.0.1:{server.port}"), version="1", watch_silence=0.05)
        with pytest.raises(UnavailableError) as caught:
            await anext(client.watch(NODES, resource_version=1))
        assert caught.value.reason == "Timeout"
        with pytest.raises(UnavailableError) as caught:
            await client.get(NODES, "n1")
        assert caught.value.reason == "ConnectionFailed"
        await client.close()


async def test_a_closed_client_stays_closed() -> None:
    async with ApiClient(ApiAccess("http://127.0.0.1:1"), version="1") as client:
        pass
    with pytest.raises(UnavailableError, match="closed"):
        await client.get(NODES, "n1")


async def test_a_watch_does_not_follow_a_redirect() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: https://other.test/\r\nContent-Length: 0\r\n\r\n"
    async with scripted(answering(moved)) as server:
        client = ApiClient(ApiAccess(f"http://127.0.0.1:{server.port}"), version="1")
        with pytest.raises(ApiError, match="Http302"):
            await anext(client.watch(NODES, resource_version=1))
        await client.close()

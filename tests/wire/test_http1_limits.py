"""The HTTP client's time limits, streams, TLS and addresses, and what the API client makes of its errors."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from background import background
from scripted_http import CHUNKED, EMPTY, HELLO, LARGE, OK, Peer, answering, ask, hang_up, scripted, talking_to
from tls_material import CERTIFICATE, KEY

from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.errors import ClusterConfigError
from dracpu_agent.http1.client import ClosedError, ConnectError, HttpClient, HttpTimeoutError, Limits, OriginError
from dracpu_agent.http1.message import ConnectionLostError, HttpError, RequestError
from dracpu_api.errors import ApiError, UnavailableError
from dracpu_api.resources import NODES


@pytest.fixture
def own_tls(tmp_path: Path) -> ssl.SSLContext:
    (tmp_path / "server.pem").write_text(CERTIFICATE + KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    return context


# ---- time, cancellation, the end


async def test_an_answer_has_its_time() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK + b"Content-Length: 5\r\n\r\nhell")
        await peer.gone()

    async with scripted(script) as server, talking_to(server.port) as client:
        with pytest.raises(HttpTimeoutError, match=r"no answer within 0\.05 s"):
            await ask(client, seconds=0.05)


async def test_waiting_for_a_turn_is_part_of_the_time() -> None:
    async with (
        scripted(answering(CHUNKED)) as server,
        talking_to(server.port, Limits(connections=1)) as client,
        client.stream("GET", "/x", headers={}, silence=20),
    ):
        with pytest.raises(HttpTimeoutError):
            await ask(client, seconds=0.01)


async def test_a_cancelled_request_leaves_no_half_read_answer_behind() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK + b"Content-Length: 5\r\n\r\nhell")
        asked.set()
        await peer.gone()
        left.set()

    async with (
        scripted(script, answering(HELLO)) as server,
        talking_to(server.port, Limits(connections=1)) as client,
    ):
        async with background(ask(client)):
            await asked.wait()
        await left.wait()
        assert (await ask(client)).body == b"hello"


async def test_close_ends_what_is_under_way_and_what_waits() -> None:
    async with (
        scripted(answering(OK + b"\r\nuntil the end, which a close is not")) as server,
        talking_to(server.port, Limits(connections=2)) as client,
        client.stream("GET", "/x", headers={}, silence=20) as answer,
    ):
        assert await anext(answer)
        asking, waiting = asyncio.create_task(ask(client)), asyncio.create_task(ask(client))
        await server.until_connected(2)
        await client.close()
        with pytest.raises(ConnectionLostError, match="closed on this side"):
            await anext(answer)
        with pytest.raises(HttpError):
            await asking
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await ask(client)


async def test_a_closed_client_has_no_sockets() -> None:
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


async def test_what_is_connecting_when_the_client_is_closed_asks_for_nothing(own_tls: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        client = HttpClient(url, tls=ssl.create_default_context(cadata=CERTIFICATE))
        asking = asyncio.create_task(ask(client))
        accepted, _ = await loop.sock_accept(listener)
        await client.close()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted, ssl=own_tls)
        with pytest.raises(ClosedError):
            await asking
        transport.abort()


# ---- streams


async def test_a_stream_is_read_as_it_arrives() -> None:
    taken = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.dribble(CHUNKED + b"3\r\none\r\n")
        await taken.wait()
        await peer.dribble(b"3\r\ntwo\r\n0\r\n\r\n")
        await peer.request()
        await peer.say(HELLO)
        await peer.gone()

    async with scripted(script) as server, talking_to(server.port) as client:
        async with client.stream("GET", "/x", headers={}, silence=20) as answer:
            assert answer.status == 200
            seen = b""
            async for piece in answer:
                seen += piece
                if seen == b"one":
                    taken.set()
            assert seen == b"onetwo"
        assert (await ask(client)).body == b"hello"
        assert server.connections == 1, "a stream that came to its end leaves its connection to others"


async def test_what_is_said_after_the_end_of_a_stream_is_not_the_next_answer() -> None:
    read, said = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(HELLO)
        await read.wait()
        await peer.say(HELLO)
        said.set()
        await peer.gone()

    async with scripted(script, answering(EMPTY)) as server, talking_to(server.port) as client:
        async with client.stream("GET", "/x", headers={}, silence=20) as answer:
            await answer.read()
            read.set()
            await said.wait()
            for _ in range(3):  # the socket has the bytes, now the client
                await asyncio.sleep(0)
        assert (await ask(client, "POST", b"")).body == b""


async def test_a_stream_that_is_left_is_closed() -> None:
    async with (
        scripted(answering(CHUNKED + b"3\r\none\r\n"), answering(HELLO)) as server,
        talking_to(server.port) as client,
    ):
        async with client.stream("GET", "/x", headers={}, silence=20) as answer:
            assert await anext(answer) == b"one"
        assert (await ask(client)).body == b"hello"


async def test_a_stream_may_be_read_whole() -> None:
    async with (
        scripted(answering(HELLO)) as server,
        talking_to(server.port) as client,
        client.stream("GET", "/x", headers={}, silence=20) as answer,
    ):
        assert await answer.read() == b"hello"


@pytest.mark.parametrize("said", [b"", OK, CHUNKED + b"3\r\none\r\n"], ids=["nothing", "half a head", "a piece"])
async def test_a_silent_stream_is_given_up(said: bytes) -> None:
    async def read_on(client: HttpClient) -> None:
        async with client.stream("GET", "/x", headers={}, silence=0.05) as answer:
            async for piece in answer:
                assert piece == b"one"

    async with scripted(answering(said)) as server, talking_to(server.port) as client:
        with pytest.raises(HttpTimeoutError, match="fell silent"):
            await read_on(client)


async def test_a_server_that_is_faster_than_we_read_has_to_wait() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK + b"Content-Length: %d\r\n\r\n" % len(LARGE) + LARGE)
        said.set()
        await peer.gone()

    said = asyncio.Event()
    async with (
        scripted(script) as server,
        talking_to(server.port) as client,
        client.stream("GET", "/x", headers={}, silence=20) as answer,
    ):
        size = len(await anext(answer))
        for _ in range(1000):  # enough to take it all, were it not held back
            await asyncio.sleep(0)
        assert not said.is_set()
        async for piece in answer:
            size += len(piece)
        assert size == len(LARGE)


# ---- TLS and addresses


async def test_tls_connections_are_kept_too(own_tls: ssl.SSLContext) -> None:
    trusting = ssl.create_default_context(cadata=CERTIFICATE)
    async with scripted(answering(HELLO, CHUNKED + b"0\r\n\r\n"), tls=own_tls) as server:
        for name in (None, "api.test"):
            client = HttpClient(f"https://127.0.0.1:{server.port}", tls=trusting, server_name=name)
            assert [(await ask(client)).body, (await ask(client)).body] == [b"hello", b""]
            await client.close()
        assert server.connections == 2


@pytest.mark.parametrize(
    ("authority", "name"), [(None, None), (CERTIFICATE, "other.test")], ids=["unknown authority", "another name"]
)
async def test_a_server_that_cannot_prove_who_it_is_gets_no_request(
    own_tls: ssl.SSLContext, authority: str | None, name: str | None
) -> None:
    tls = ssl.create_default_context(cadata=authority) if authority else None
    async with scripted(hang_up, tls=own_tls) as server:
        client = HttpClient(f"https://127.0.0.1:{server.port}", tls=tls, server_name=name)
        with pytest.raises(ConnectError, match="certificate is not trusted"):
            await ask(client)
        await client.close()
        assert server.connections == 0


async def test_a_server_that_does_not_speak_tls() -> None:
    async def end(peer: Peer) -> None:
        peer.end()

    async def say(peer: Peer) -> None:
        await peer.say(HELLO)
        await peer.left()

    async def wait(peer: Peer) -> None:
        await peer.left()

    for script, kind in ((end, ConnectError), (say, ConnectError), (wait, HttpTimeoutError)):
        async with scripted(script) as server:
            client = HttpClient(f"https://127.0.0.1:{server.port}", limits=Limits(connect_seconds=0.2))
            with pytest.raises(kind, match=r"127\.0\.0\.1:\d+(: \S+| within 0\.2 s)"):
                await ask(client)
            await client.close()


async def test_ipv6_addresses_stand_in_brackets() -> None:
    async def script(peer: Peer) -> None:
        assert (await peer.request()).headers["Host"] == f"[::1]:{server.port}"
        await peer.say(EMPTY)

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
async def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(OriginError) as caught:
        HttpClient(url)
    assert "secret" not in str(caught.value)


async def test_a_header_that_would_be_two_is_never_sent() -> None:
    async with scripted(hang_up) as server, talking_to(server.port) as client:
        with pytest.raises(RequestError) as caught:
            await client.request("GET", "/", headers={"Authorization": "Bearer secret\r\nX: y"}, seconds=5)
        assert "secret" not in str(caught.value) + repr(caught.value)
        assert server.connections == 0


# ---- as the API client tells it


async def test_an_address_that_is_none_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ClusterConfigError, match="host"):
        ApiClient(ApiAccess("https://user:secret@host"), version="1")


async def test_a_token_that_cannot_be_sent_is_a_passing_trouble_and_not_told() -> None:
    access = ApiAccess("http://127.0.0.1:1", token=lambda: "sec\nret")
    async with ApiClient(access, version="1") as client:
        with pytest.raises(UnavailableError, match="Authorization") as caught:
            await client.get(NODES, "n1")
    assert "ret" not in str(caught.value) + repr(caught.value)


async def test_a_timeout_is_told_from_a_lost_connection() -> None:
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


async def test_a_watch_that_is_sent_elsewhere_does_not_go_there() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: https://other.test/\r\nContent-Length: 0\r\n\r\n"
    async with scripted(answering(moved)) as server:
        client = ApiClient(ApiAccess(f"http://127.0.0.1:{server.port}"), version="1")
        with pytest.raises(ApiError, match="Http302"):
            await anext(client.watch(NODES, resource_version=1))
        await client.close()

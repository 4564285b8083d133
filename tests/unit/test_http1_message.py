"""HTTP/1.1 messages: an answer is decoded wherever it is split, and an ambiguous one is refused."""

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.http1.message import (
    CHUNK_LINE_LIMIT,
    HEAD_LIMIT,
    AnswerDecoder,
    ConnectionLostError,
    HttpError,
    MalformedAnswerError,
    RequestError,
    encode_request,
)

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Case:
    """An answer's bytes, and how they should be decoded."""

    wire: bytes
    body: bytes
    headers: dict[str, str]
    until_end: bool = False


header_names = st.from_regex(r"X-[A-Za-z0-9-]{1,10}", fullmatch=True)
header_values = st.from_regex(r"([!-~]([ -~]{0,10}[!-~])?)?", fullmatch=True)
bodies = st.binary(max_size=60) | st.sampled_from([b"\r\n", b"\r\n\r\n", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
informational = st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"])


@st.composite
def answers(draw: st.DrawFn) -> Case:
    headers = draw(st.dictionaries(header_names, header_values, max_size=3))
    spaces = draw(st.sampled_from([b"", b" ", b" \t"]))
    head = draw(informational) + OK
    head += b"".join(
        name.encode() + b":" + spaces + value.encode() + spaces + b"\r\n" for name, value in headers.items()
    )
    expected: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        expected[key] = f"{expected[key]}, {value}" if key in expected else value
    pieces = draw(st.lists(bodies, max_size=4))
    body = b"".join(pieces)
    match draw(st.sampled_from(["sized", "chunked", "until end"])):
        case "sized":
            return Case(head + b"Content-Length: %d\r\n\r\n" % len(body) + body, body, expected)
        case "chunked":
            extension = draw(st.sampled_from([b"", b";a=b", b" ; a", b" "]))
            chunks = [b"%X%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces if piece]
            trailer = draw(st.sampled_from([b"", b"A: b\r\n"]))
            wire = head + b"transfer-encoding: Chunked\r\n\r\n" + b"".join(chunks) + b"000\r\n" + trailer + b"\r\n"
            return Case(wire, body, expected)
    return Case(head + b"\r\n" + body, body, expected, until_end=True)


@st.composite
def split(draw: st.DrawFn, data: bytes) -> list[bytes]:
    if draw(st.booleans()):
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [part for part in parts if part]


def decoded(wire: bytes, method: str = "GET") -> AnswerDecoder:
    decoder = AnswerDecoder(method)
    decoder.feed(wire)
    return decoder


@given(answers(), st.data())
def test_an_answer_is_decoded_wherever_it_is_split(case: Case, data: st.DataObject) -> None:
    decoder = AnswerDecoder("GET")
    body = b"".join(decoder.feed(part) for part in data.draw(split(case.wire)))
    assert body == case.body
    assert decoder.complete is not case.until_end
    assert decoder.leaves_reusable is not case.until_end
    assert decoder.head is not None
    assert decoder.head.status == 200
    assert case.headers.items() <= decoder.head.headers.items()
    if case.until_end:
        decoder.end()
    assert decoder.complete


@given(answers(), st.data())
def test_a_truncated_answer_is_never_complete(case: Case, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(case.wire) - 1))
    decoder = AnswerDecoder("GET")
    if size:
        decoder.feed(case.wire[:size])
    if case.until_end and decoder.head is not None:
        return  # an answer of this kind cannot be distinguished from a complete one
    assert not decoder.complete
    with pytest.raises(ConnectionLostError, match="during" if size else "before"):
        decoder.end()


@given(answers(), st.binary(min_size=1, max_size=20))
def test_after_excess_bytes_the_connection_is_not_reusable(case: Case, more: bytes) -> None:
    decoder = AnswerDecoder("GET")
    body = decoder.feed(case.wire + more)
    assert not decoder.leaves_reusable
    assert body == (case.body + more if case.until_end else case.body)


@given(answers(), st.data())
def test_a_damaged_answer_has_the_same_outcome_wherever_it_is_split(case: Case, data: st.DataObject) -> None:
    wire = bytearray(case.wire)
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.sampled_from(b"\r\n :;0fx\0"))

    def outcome(parts: list[bytes]) -> object:
        decoder, body = AnswerDecoder("GET"), b""
        try:
            for part in parts:
                body += decoder.feed(part)
            decoder.end()
        except HttpError as error:
            return str(error)
        return decoder.head, body, decoder.leaves_reusable

    assert outcome([bytes(wire)]) == outcome(data.draw(split(bytes(wire))))


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/1.1 2000 High\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 200OK\r\n\r\n",
        b"HTTP/1.\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"Space : before the colon\r\n\r\n",
        OK + b": no name\r\n\r\n",
        OK + b"A: b\r\n folded\r\n\r\n",
        OK + b"A: b\nC: d\r\n\r\n",
        OK + b"A: b\rC: d\r\n\r\n",
        OK + b"A: b\0\r\n\r\n",
        OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        OK + b"Content-Length: -5\r\n\r\n",
        OK + b"Content-Length: +5\r\n\r\n",
        OK + b"Content-Length: 5_0\r\n\r\n",
        OK + b"Content-Length: \xb2\r\n\r\n",
        OK + b"Content-Length: 5\xa0\r\n\r\n",
        OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        OK + b"Content-Length:\r\n\r\n",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: identity\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"0x5\r\n",
        CHUNKED + b"+5\r\n",
        CHUNKED + b"5_0\r\n",
        CHUNKED + b" 5\r\n",
        CHUNKED + b"5 5\r\n",
        CHUNKED + b"5;a\nb\r\n",
        CHUNKED + b"F" * 17 + b"\r\n",
        CHUNKED + b"5\r\nhello!\r\n",
    ],
)
def test_a_malformed_or_ambiguous_answer_is_refused(wire: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        decoded(wire)


@pytest.mark.parametrize("status", [b"200 OK", b"200 ", b"200", b"200 All \xe4\xf6\xfc"])
def test_the_reason_phrase_is_ignored(status: bytes) -> None:
    decoder = decoded(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
    assert decoder.head is not None
    assert (decoder.head.status, decoder.complete) == (200, True)


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", "200 OK"), ("GET", "204 No Content"), ("GET", "304 Not Modified")]
)
@pytest.mark.parametrize("length", [b"", b"Content-Length: 500\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_such_answers_have_no_body_whatever_their_length_headers(method: str, status: str, length: bytes) -> None:
    decoder = decoded(f"HTTP/1.1 {status}\r\n".encode() + length + b"\r\n", method)
    assert decoder.leaves_reusable


@pytest.mark.parametrize(
    ("version", "connection", "persistent"),
    [
        ("1.1", "", True),
        ("1.1", "keep-alive", True),
        ("1.1", "close", False),
        ("1.1", "Upgrade, Close", False),
        ("1.0", "", False),
        ("1.0", "Keep-Alive", True),
    ],
)
def test_the_answer_says_whether_the_connection_stays_open(version: str, connection: str, persistent: bool) -> None:
    wire = f"HTTP/{version} 200 OK\r\nContent-Length: 0\r\nConnection: {connection}\r\n\r\n"
    assert decoded(wire.encode()).leaves_reusable is persistent


@given(st.data())
def test_heads_and_chunk_lines_have_limits(data: st.DataObject) -> None:
    rest = HEAD_LIMIT - len(OK[7:]) - len(b"A: \r\n") - len(b"Content-Length: 0\r\n\r\n")
    for excess in (0, 1):
        wire = OK + b"A: " + b"a" * (rest + excess) + b"\r\nContent-Length: 0\r\n\r\n"
        cut = data.draw(st.integers(1, len(wire) - 1))
        decoder = AnswerDecoder("GET")
        refused = pytest.raises(MalformedAnswerError, match="too long") if excess else contextlib.nullcontext()
        with refused:
            decoder.feed(wire[:cut])
            decoder.feed(wire[cut:])
        assert decoder.leaves_reusable is not bool(excess)
    decoded(CHUNKED + b"5;" + b"a" * (CHUNK_LINE_LIMIT - 4) + b"\r\n")
    with pytest.raises(MalformedAnswerError, match="too long"):
        decoded(CHUNKED + b"5;" + b"a" * (CHUNK_LINE_LIMIT - 3) + b"\r\n")


def test_a_line_without_an_end_is_refused_at_the_limit() -> None:
    for start in (OK + b"A: ", b"HTTP/1.1 200 " + b"a" * 100):
        with pytest.raises(MalformedAnswerError, match="too long"):
            decoded(start + b"a" * HEAD_LIMIT)


@pytest.mark.parametrize(
    ("endless", "start"),
    [(b"HTTP/1.1 100 Continue\r\n\r\n", b""), (b"A: b\r\n", CHUNKED + b"0\r\n")],
    ids=["informational answers", "trailers"],
)
def test_endless_informational_answers_and_trailers_are_refused_at_the_limit(endless: bytes, start: bytes) -> None:
    with pytest.raises(MalformedAnswerError, match="too long"):
        decoded(start + endless * HEAD_LIMIT)


def test_the_number_of_chunks_is_not_limited() -> None:
    decoder = decoded(CHUNKED)
    for _ in range(HEAD_LIMIT // 4):
        assert decoder.feed(b"1;extension=1\r\na\r\n") == b"a"


def test_a_request_is_encoded_with_host_and_length() -> None:
    assert encode_request("GET", "/a?b=c", "[::1]:80", {"Accept": "x"}, None) == (
        b"GET /a?b=c HTTP/1.1\r\nHost: [::1]:80\r\nAccept-Encoding: identity\r\nAccept: x\r\n\r\n"
    )
    assert encode_request("POST", "/", "h", {}, b"").endswith(b"\r\nContent-Length: 0\r\n\r\n")
    assert encode_request("PUT", "/", "h", {}, b"body").endswith(b"\r\nContent-Length: 4\r\n\r\nbody")


texts = st.text("Ab1/?=: \t\r\n\0é", max_size=5)


@given(texts, texts, texts, texts)
def test_nothing_can_be_injected_into_a_request(method: str, target: str, name: str, value: str) -> None:
    try:
        wire = encode_request(method, "/" + target, "h", {name: value}, None)
    except RequestError:
        return
    assert wire.endswith(b"\r\n\r\n")
    first, _, _, header = wire.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert first.split(" ") == [method, "/" + target, "HTTP/1.1"]
    assert header == f"{name}: {value}"


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "Connection", "", "A b", "A:", "A\r\n"]
)
def test_invalid_headers_and_headers_that_the_client_sets_are_refused(name: str) -> None:
    with pytest.raises(RequestError):
        encode_request("GET", "/", "h", {name: "1"}, None)


@pytest.mark.parametrize("secret", ["secret\n", "secret\r\nX: y", "secret\0", "sécret-secret"])
def test_the_error_about_an_invalid_token_does_not_contain_the_token(secret: str) -> None:
    with pytest.raises(RequestError, match="Authorization") as caught:
        encode_request("GET", "/", "h", {"Authorization": f"Bearer {secret}"}, None)
    assert "cret" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize("target", ["", "a", "*", "/a b", "/ä", "/a\r\nX: y", "http://other/"])
def test_a_target_that_is_not_a_path_is_refused(target: str) -> None:
    with pytest.raises(RequestError):
        encode_request("GET", target, "h", {}, None)

"""Encodes requests and decodes answers of HTTP/1.1, without any I/O.

The decoder is strict (RFC 9112): where the end of an answer is ambiguous, a guess could take the rest of it for the
answer to the next request. It follows the grammar, as a generator that pauses where bytes are missing.
"""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from dracpu_api.errors import DriverError

HEAD_LIMIT: Final = 64 * 1024  # status lines, headers and trailers of one answer together
CHUNK_LINE_LIMIT: Final = 1024  # the line with a chunk's size, and extensions, which are ignored

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"/[!-~]*")
_VALUE: Final = re.compile(r"[\t -~]*")
_OURS: Final = frozenset({"accept-encoding", "connection", "content-length", "host", "te", "transfer-encoding"})

_START: Final = b"HTTP/1."
_STATUS_LINE: Final = re.compile(r"([0-9]) ([1-9][0-9]{2})(?: .*)?")  # after _START; the reason may be missing
_STRAY: Final = re.compile(r"[\r\n\0]")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_CHUNK_LINE: Final = re.compile(r"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")

_T = TypeVar("_T")
_Reading = Generator[None, None, _T]  # yields wherever it needs more bytes


class HttpError(DriverError):
    """There is no complete answer. The message never contains header values, as they include a token."""


class RequestError(HttpError):
    """The request is not valid HTTP; nothing was sent."""


class ConnectionLostError(HttpError):
    """The connection ended before the end of the answer."""


class MalformedAnswerError(HttpError):
    """The server sent something that is not a valid answer to the request in HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Head:
    """The answer without its body."""

    status: int
    headers: Mapping[str, str]  # names in lower case; values of a repeated header are joined with ", "
    persistent: bool  # the server accepts another request on this connection


def encode_request(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """The request in one piece. Host, length and encoding headers are set here; `headers` must not contain them."""
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise RequestError(f"the method {method!r} or the path {target!r} is not valid in HTTP")
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
            raise RequestError(f"the header name {name!r} is not valid, or is set by the client itself")
        if not _VALUE.fullmatch(value):
            raise RequestError(f"the value of the header {name} is not plain ASCII, or has a line break")
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (body or b"")


class AnswerDecoder:
    """Decodes one answer, whose bytes may arrive in pieces of any size."""

    def __init__(self, method: str) -> None:
        self.head: Head | None = None  # after it was read; 1xx answers are skipped
        self.begun = False
        self.complete = False
        self._received = bytearray()
        self._ended = False  # nothing more will arrive
        self._body: list[bytes] = []
        self._head_left = HEAD_LIMIT
        self._reading = self._answer(method)

    def feed(self, data: bytes) -> bytes:
        """Decodes received bytes, and returns the part of the body that they contain."""
        self.begun = True
        self._received += data
        return self._continue()

    def end(self) -> None:
        """The connection has ended, which also ends an answer that states no length."""
        self._ended = True
        self._continue()
        if not self.complete:
            when = "during" if self.begun else "before"
            raise ConnectionLostError(f"the server closed the connection {when} the answer")

    @property
    def leaves_reusable(self) -> bool:
        """Whether the next byte on the connection would belong to the answer to another request."""
        return self.complete and not self._received and self.head is not None and self.head.persistent

    def _continue(self) -> bytes:
        next(self._reading, None)
        body, self._body = b"".join(self._body), []
        return body

    # ---- the grammar

    def _answer(self, method: str) -> _Reading[None]:
        head = yield from self._read_head()
        while head.status < 200:
            if head.status == 101:
                raise MalformedAnswerError("the server switched to another protocol without being asked to")
            head = yield from self._read_head()
        self.head = head
        if method == "HEAD" or head.status in {204, 304}:
            self.complete = True
            return
        length = _body_length(head)
        if length is not None:
            yield from self._read_body(length)
        elif "transfer-encoding" in head.headers:
            yield from self._read_chunks()
        else:
            yield from self._read_until_end()
        self.complete = True

    def _read_head(self) -> _Reading[Head]:
        # another protocol is detected at once, not at the end of a line or at a limit
        if (yield from self._read_exactly(len(_START))) != _START:
            raise MalformedAnswerError("the server does not answer in HTTP/1.1")
        return _head((yield from self._read_lines()))

    def _read_lines(self) -> _Reading[list[str]]:
        """The lines up to the empty line that ends a head or a trailer."""
        lines = []
        while line := (yield from self._read_line(self._head_left)):
            self._head_left -= len(line) + 2
            lines.append(line)
        return lines

    def _read_line(self, limit: int) -> _Reading[str]:
        while (end := self._received.find(b"\r\n")) < 0 and len(self._received) < limit:
            yield
        if not 0 <= end <= limit - 2:
            raise MalformedAnswerError("the head of the answer, or a line in it, is too long")
        line = self._consume(end + 2)[:-2].decode("latin-1")
        if _STRAY.search(line):
            raise MalformedAnswerError("a line of the answer contains a stray CR, LF or NUL")
        return line

    def _read_exactly(self, size: int) -> _Reading[bytes]:
        while len(self._received) < size:
            yield
        return self._consume(size)

    def _read_body(self, size: int) -> _Reading[None]:
        while size:
            if not self._received:
                yield
            piece = self._consume(size)
            size -= len(piece)
            self._body.append(piece)

    def _read_chunks(self) -> _Reading[None]:
        while size := _chunk_size((yield from self._read_line(CHUNK_LINE_LIMIT))):
            yield from self._read_body(size)
            if (yield from self._read_exactly(2)) != b"\r\n":
                raise MalformedAnswerError("a chunk of the answer is longer than its stated size")
        yield from self._read_lines()  # trailers are ignored

    def _read_until_end(self) -> _Reading[None]:
        while not self._ended:
            self._body.append(self._consume(len(self._received)))
            yield

    def _consume(self, size: int) -> bytes:
        data = bytes(self._received[:size])
        del self._received[:size]
        return data


def _head(lines: list[str]) -> Head:
    """Parses the lines of a head, of which the first lacks _START."""
    status_line = _STATUS_LINE.fullmatch(lines[0]) if lines else None
    if status_line is None:
        raise MalformedAnswerError("the answer does not begin with a valid status line")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise MalformedAnswerError("a line in the head of the answer is not a header")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    options = {option.strip(" \t") for option in headers.get("connection", "").lower().split(",")}
    persistent = "keep-alive" in options if status_line[1] == "0" else "close" not in options
    if "transfer-encoding" in headers and status_line[1] == "0":
        raise MalformedAnswerError("the answer is HTTP/1.0 with a transfer encoding, which HTTP/1.0 does not have")
    return Head(int(status_line[2]), headers, persistent)


def _body_length(head: Head) -> int | None:
    """None when the body ends with its last chunk or with the connection."""
    length, transfer = head.headers.get("content-length"), head.headers.get("transfer-encoding")
    if head.headers.get("content-encoding", "identity").lower() != "identity":
        raise MalformedAnswerError("the answer is compressed, although the client does not accept compression")
    if transfer is not None and (length is not None or transfer.lower() != "chunked"):
        raise MalformedAnswerError("the answer's Transfer-Encoding makes its length ambiguous")
    if length is not None and not _LENGTH.fullmatch(length):  # a repeated header is joined with a comma: refused
        raise MalformedAnswerError("the answer's Content-Length is not a number")
    return None if length is None else int(length)


def _chunk_size(line: str) -> int:
    chunk = _CHUNK_LINE.fullmatch(line)
    if chunk is None:
        raise MalformedAnswerError("a chunk of the answer has no valid size")
    return int(chunk[1], 16)

"""HTTP/1.1 messages as bytes: a request is put together, an answer is taken apart. Pure: nothing here does I/O.

The decoder is strict (RFC 9112): whoever guesses where a doubtful answer ends may take the rest of it for the answer to
the next request. It reads the answer in the order of its grammar, as a generator that stops where bytes are missing.
"""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from dracpu_api.errors import DriverError

HEAD_LIMIT: Final = 64 * 1024  # status lines, headers and trailers of one answer together
CHUNK_LINE_LIMIT: Final = 1024  # the size of a chunk with its extensions, which are ignored

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
    """There is no answer, or not a whole one. Never tells what was sent: headers carry a token."""


class RequestError(HttpError):
    """The request cannot be written as HTTP; nothing was sent."""


class ConnectionLostError(HttpError):
    """The connection ended before the answer did."""


class MalformedAnswerError(HttpError):
    """What arrived is not an answer in HTTP/1.1, or one that was not asked for."""


@dataclass(frozen=True, slots=True)
class Head:
    """The answer without its body."""

    status: int
    headers: Mapping[str, str]  # names in lower case; values of a repeated header are joined with ", "
    persistent: bool  # the server will take another request on this connection


def encode_request(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """The request as one piece; Host, lengths and encodings are set here and nowhere else."""
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise RequestError(f"cannot be asked for: {method!r} of {target!r}")
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
            raise RequestError(f"a request cannot have a header {name!r} of its own")
        if not _VALUE.fullmatch(value):
            raise RequestError(f"the value of the header {name} is not plain ASCII, or has a line break")
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (body or b"")


class AnswerDecoder:
    """One answer, from its first byte to its last, in whatever pieces it arrives."""

    def __init__(self, method: str) -> None:
        self.head: Head | None = None  # when the final answer's has been read; 1xx answers are skipped
        self.begun = False
        self.complete = False
        self._received = bytearray()
        self._over = False  # nothing more will arrive
        self._body: list[bytes] = []
        self._head_left = HEAD_LIMIT
        self._reading = self._answer(method)

    def feed(self, data: bytes) -> bytes:
        """Takes what has arrived; gives the part of the body that it holds."""
        self.begun = True
        self._received += data
        return self._read_on()

    def end(self) -> None:
        """The connection has ended, and with it an answer that says nothing of its length."""
        self._over = True
        self._read_on()
        if not self.complete:
            where = "within" if self.begun else "before"
            raise ConnectionLostError(f"the server ended the connection {where} the answer")

    @property
    def leaves_clean(self) -> bool:
        """True when the connection stands exactly where the answer to another request would begin."""
        return self.complete and not self._received and self.head is not None and self.head.persistent

    def _read_on(self) -> bytes:
        next(self._reading, None)
        body, self._body = b"".join(self._body), []
        return body

    # ---- the grammar

    def _answer(self, method: str) -> _Reading[None]:
        head = yield from self._read_head()
        while head.status < 200:
            if head.status == 101:
                raise MalformedAnswerError("the server changes to another protocol, which nobody asked for")
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
        # what is not HTTP at all is known at once, not when its end or a limit is reached
        if (yield from self._read_exactly(len(_START))) != _START:
            raise MalformedAnswerError("the server does not speak HTTP/1.1 here")
        return _head((yield from self._read_lines()))

    def _read_lines(self) -> _Reading[list[str]]:
        """Up to the empty line that ends a head or a trailer."""
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
        line = self._take(end + 2)[:-2].decode("latin-1")
        if _STRAY.search(line):
            raise MalformedAnswerError("a line of the answer is broken in two")
        return line

    def _read_exactly(self, size: int) -> _Reading[bytes]:
        while len(self._received) < size:
            yield
        return self._take(size)

    def _read_body(self, size: int) -> _Reading[None]:
        while size:
            if not self._received:
                yield
            piece = self._take(size)
            size -= len(piece)
            self._body.append(piece)

    def _read_chunks(self) -> _Reading[None]:
        while size := _chunk_size((yield from self._read_line(CHUNK_LINE_LIMIT))):
            yield from self._read_body(size)
            if (yield from self._read_exactly(2)) != b"\r\n":
                raise MalformedAnswerError("a chunk of the answer is longer than it says")
        yield from self._read_lines()  # trailers say nothing that anybody needs

    def _read_until_end(self) -> _Reading[None]:
        while not self._over:
            self._body.append(self._take(len(self._received)))
            yield

    def _take(self, size: int) -> bytes:
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


def _head(lines: list[str]) -> Head:
    """The head from its lines, the first of them without _START."""
    status_line = _STATUS_LINE.fullmatch(lines[0]) if lines else None
    if status_line is None:
        raise MalformedAnswerError("the answer begins with no status")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise MalformedAnswerError("a line in the head of the answer is no header")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    options = {option.strip(" \t") for option in headers.get("connection", "").lower().split(",")}
    persistent = "keep-alive" in options if status_line[1] == "0" else "close" not in options
    if "transfer-encoding" in headers and status_line[1] == "0":
        raise MalformedAnswerError("an answer in HTTP/1.0 has no transfer encoding")
    return Head(int(status_line[2]), headers, persistent)


def _body_length(head: Head) -> int | None:
    """None when the body itself tells where it ends, or only the end of the connection does."""
    length, transfer = head.headers.get("content-length"), head.headers.get("transfer-encoding")
    if head.headers.get("content-encoding", "identity").lower() != "identity":
        raise MalformedAnswerError("the answer is compressed, which nobody asked for")
    if transfer is not None and (length is not None or transfer.lower() != "chunked"):
        raise MalformedAnswerError("the answer does not say clearly how long it is")
    if length is not None and not _LENGTH.fullmatch(length):  # two of them have been joined, and are refused
        raise MalformedAnswerError("the answer's Content-Length is not a number")
    return None if length is None else int(length)


def _chunk_size(line: str) -> int:
    chunk = _CHUNK_LINE.fullmatch(line)
    if chunk is None:
        raise MalformedAnswerError("a chunk of the answer has no size")
    return int(chunk[1], 16)

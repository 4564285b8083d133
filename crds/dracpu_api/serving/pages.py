"""Serves pages over HTTP/1.1, for the kubelet's probes and for Prometheus.

It supports GET and HEAD of fixed paths, with one request per connection; a library would cost memory on every node.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import structlog

from dracpu_api.listening import cannot_listen, parse_address
from dracpu_api.serving.exchange import ExchangeServer

EXCHANGE_SECONDS: Final = 5.0  # from the connection to the last byte of the answer
REQUEST_BYTES: Final = 8192

TEXT: Final = "text/plain; charset=utf-8"

log = structlog.get_logger("http")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT
    allow: str = ""


Page = Callable[[], Answer]


def probe_page(reasons: Callable[[], Sequence[str]]) -> Page:
    """A page that succeeds while there are no reasons against it, and lists them otherwise."""

    def page() -> Answer:
        found = reasons()
        if not found:
            return Answer(HTTPStatus.OK, b"ok\n")
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{reason}\n" for reason in found).encode())

    return page


class PageServer:
    """Serves pages by path, from `start` to `stop` or as an async context manager."""

    def __init__(self, address: str, pages: Mapping[str, Page], exchange_seconds: float = EXCHANGE_SECONDS) -> None:
        self._address = address
        self._host, self._port = parse_address(address)
        self._exchanges = ExchangeServer(self._exchange, exchange_seconds)
        self._pages = pages
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Starts to listen; raises ListenError."""
        try:
            self._server = await asyncio.start_server(
                self._exchanges.serve, self._host, self._port, limit=REQUEST_BYTES
            )
        except OSError as error:
            raise cannot_listen(self._address, error) from error

    @property
    def port(self) -> int:
        """The port that the server listens on, which differs from the address if that has port 0."""
        if self._server is None:
            raise RuntimeError("the server has not been started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Closes the port and every connection."""
        if self._server is not None:
            await self._exchanges.stop(self._server)
            self._server = None

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            method, answer = "GET", _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            method, answer = self._answer(head)
        writer.write(_encode(answer, with_body=method != "HEAD"))
        await writer.drain()

    def _answer(self, head: bytes) -> tuple[str, Answer]:
        request = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(request) != 3 or not request[2].startswith("HTTP/1."):
            return "GET", _plain(HTTPStatus.BAD_REQUEST)
        method, target, _ = request
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return method, _plain(HTTPStatus.NOT_FOUND)
        if method not in {"GET", "HEAD"}:
            return method, Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"use GET or HEAD\n", allow="GET, HEAD")
        try:
            return method, page()
        except Exception:
            log.exception("cannot answer a request", path=target)
            return method, _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _plain(status: HTTPStatus) -> Answer:
    return Answer(status, f"{status.phrase.lower()}\n".encode())


def _encode(answer: Answer, *, with_body: bool) -> bytes:
    headers = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        "Connection": "close",
    }
    if answer.allow:
        headers["Allow"] = answer.allow
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + answer.body if with_body else head

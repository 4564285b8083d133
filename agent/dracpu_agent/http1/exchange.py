"""One request and its answer on a connection."""

from typing import Final

from dracpu_agent.http1.connection import Connection
from dracpu_agent.http1.message import AnswerDecoder, Head, HttpError

_REPEATABLE: Final = frozenset({"GET", "HEAD"})


class AnswerTooLargeError(HttpError):
    """The answer exceeds the limit."""


class Exchange:
    """A request and its answer, on a connection that serves no other exchange meanwhile."""

    def __init__(self, connection: Connection, method: str) -> None:
        self.connection = connection
        self._method = method
        self._decoder = AnswerDecoder(method)
        self._sent = False
        self._early = b""  # the part of the body that arrived together with the head

    @property
    def head(self) -> Head:
        """The answer's head, after `begin`."""
        assert self._decoder.head is not None
        return self._decoder.head

    @property
    def leaves_reusable(self) -> bool:
        """Whether the connection can serve another exchange: this one's answer was read to its end."""
        return self._decoder.leaves_reusable

    @property
    def repeatable(self) -> bool:
        """Whether the request can be sent again without the risk that the server processes it twice."""
        return not self._decoder.begun and (not self._sent or self._method in _REPEATABLE)

    async def begin(self, request: bytes) -> None:
        """Sends the request, and waits for the head of the answer."""
        try:
            self._sent = self.connection.send(request)
            while self._decoder.head is None:
                self._early += await self._receive()
        except BaseException:
            self.connection.abort()
            raise

    async def receive(self) -> bytes:
        """More of the body, or nothing at its end."""
        piece, self._early = self._early, b""
        while not piece and not self._decoder.complete:
            piece = await self._receive()
        return piece

    async def read(self, limit: int) -> bytes:
        """The rest of the body; raises AnswerTooLargeError when it is longer than `limit` bytes."""
        pieces, size = [], 0
        while piece := await self.receive():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise AnswerTooLargeError(f"the answer is larger than {limit} bytes")
        return b"".join(pieces)

    async def _receive(self) -> bytes:
        data = await self.connection.receive()
        if data:
            return self._decoder.feed(data)
        self._decoder.end()
        return b""

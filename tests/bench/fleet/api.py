"""A client that does as little as a client can: it sends bytes and returns bytes."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiohttp

from dracpu_api.resources import Json, JsonObject
from dracpu_operator.api.cluster import FIELD_MANAGER
from fleet.errors import RefusedError

APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

_LONGEST_LINE: Final = 16 * 2**20
_PAGE: Final = "500"

_T = TypeVar("_T")


class Api:
    """A connection with the token of one user, as an async context manager."""

    def __init__(self, server: str, authority: str, token: str) -> None:
        tls = ssl.create_default_context(cadata=authority)
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._session = aiohttp.ClientSession(
            server,
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            headers={"Authorization": f"Bearer {token}", "User-Agent": "fleet"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
            read_bufsize=_LONGEST_LINE,
        )

    @classmethod
    def of_kubeconfig(cls, kubeconfig: Json) -> Self:
        """Connects as the only user of a kubeconfig."""
        cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return cls(cluster["server"], authority, user["token"])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """Sends a request and returns the answer; a body of bytes is sent as it is."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        async with self._session.request(method, path, params=query, data=data, headers=headers) as answer:
            payload = await answer.read()
        if answer.status >= 300:
            raise RefusedError(answer.status, f"{method} {path}", payload)
        return payload

    async def read(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        """Returns an object or a list."""
        answer: JsonObject = json.loads(await self.send("GET", path, query=query))
        return answer

    async def apply(self, path: str, body: Json) -> bytes:
        """Creates or changes an object by server-side apply."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self.send("PATCH", path, body, content_type=APPLY, query=query)

    async def items(self, path: str) -> tuple[list[JsonObject], str]:
        """Returns all objects of a list, and the version from which a watch continues."""
        found: list[JsonObject] = []
        query = {"limit": _PAGE}
        while True:
            page = await self.read(path, query)
            found += page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return found, page["metadata"]["resourceVersion"]
            query = {"limit": _PAGE, "continue": token}

    async def watch(self, path: str, since: str) -> AsyncIterator[JsonObject]:
        """Yields the events of a watch until the API server ends it."""
        query = {"watch": "true", "resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": "3600"}
        async with self._session.get(path, params=query) as answer:
            async for line in answer.content:
                yield json.loads(line)


async def each(things: Iterable[_T], send: Callable[[_T], Awaitable[object]], parallel: int) -> None:
    """Sends a request for each of the things, so many at a time."""
    queue = iter(list(things))

    async def work() -> None:
        for thing in queue:
            await send(thing)

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(work())

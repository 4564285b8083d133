"""The connection to the API server: lists, watches, server-side apply, deletion. Holds no policy; raises typed errors.

Of kubernetes_asyncio only the configuration is used (credentials, TLS, proxies): its models would turn 5,000 objects
into Python objects of which three fields are read.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, Protocol, Self

import aiohttp
import structlog
from kubernetes_asyncio.client import Configuration

from dracpu_api.answers import WatchEvent, read_event, read_list, read_object, read_stored, refusal
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ExpiredError, Named, SilentError, UnavailableError
from dracpu_api.resources import Json, Resource, resource_version
from dracpu_operator.api.connection import Connection
from dracpu_operator.api.gather import gather
from dracpu_operator.known.follow import Scope

log = structlog.get_logger()

FIELD_MANAGER: Final = "dracpu-operator"

_PAGE: Final = 100  # objects per page of a list: five times as many take 45 MiB more for good, with 15,000 pods
_METADATA_PAGE: Final = 500
_PAGE_ATTEMPTS: Final = 6
_PAGE_RETRY_SECONDS: Final = 0.5  # at first
_SECONDS: Final = 30.0
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_WATCH_SECONDS: Final = 240  # then the API server ends the watch, and another one continues
_SILENCE_SECONDS: Final = 90.0  # the API server sends a bookmark each minute


class Permit(Protocol):
    """Decides whether this process may write."""

    def writing(self) -> AbstractAsyncContextManager[float]:
        """Surrounds a write. Waits until it may be sent, and returns the seconds within which it has to be executed."""


class Cluster:
    """A connection to the API server, as an async context manager. With a permit, writes are sent only as it allows."""

    def __init__(self, configuration: Configuration, permit: Permit | None = None) -> None:
        self._connection = Connection(configuration, FIELD_MANAGER)
        self._permit = permit

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.__aexit__(kind, error, trace)

    async def items(self, resource: Resource, *, metadata_only: bool = False) -> AsyncIterator[Json]:
        """Yields all objects of a kind, in all namespaces; they are requested page by page."""
        async for page in self.pages(Scope(resource, metadata_only=metadata_only)):
            for item in page.get("items") or ():
                yield item

    async def pages(self, scope: Scope) -> AsyncIterator[Json]:
        """Yields a list of objects, page by page. They show one moment, unless that takes minutes: then later pages
        show a later one. A watch from the version of the first page shows everything since then."""
        path = scope.resource.path(namespace=scope.namespace)
        accept = _METADATA_LIST if scope.metadata_only else "application/json"
        limit = _METADATA_PAGE if scope.metadata_only else _PAGE
        query = [("limit", str(limit)), *([("labelSelector", scope.selector)] if scope.selector else [])]
        payload, has_expired = await self._request("GET", path, query, accept=accept), False
        while True:
            page = read_list(payload, f"GET {path}", scope.resource)
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            try:
                payload = await self._next_page(path, [*query, ("continue", token)], accept)
            except ExpiredError as error:  # the pages took so long that their common version was dropped
                if has_expired or not error.continue_token:
                    raise
                has_expired = True
                payload = await self._next_page(path, [*query, ("continue", error.continue_token)], accept)

    async def _next_page(self, path: str, query: list[tuple[str, str]], accept: str) -> bytes:
        """Reads another page than the first one. While the API server is busy, only that page is requested again: a
        list of 15,000 nodes has 30."""
        backoff = Backoff(_PAGE_RETRY_SECONDS)
        for _ in range(_PAGE_ATTEMPTS - 1):
            try:
                return await self._request("GET", path, query, accept=accept)
            except UnavailableError as error:
                log.info("a page of a list is requested again", error=str(error))
                await asyncio.sleep(backoff.next_spread(error))
        return await self._request("GET", path, query, accept=accept)

    async def version(self, resource: Resource, *, namespace: str = "") -> int:
        """Returns the version that the objects of a kind have at this moment, from a list of one object: such a list is
        never older than the request."""
        path = resource.path(namespace=namespace)
        payload = await self._request("GET", path, [("limit", "1")], accept=_METADATA_LIST)
        return resource_version(read_list(payload, f"GET {path}", resource))

    @contextlib.asynccontextmanager
    async def watch(
        self, scope: Scope, since: str, *, seconds: int = _WATCH_SECONDS, gathering: float = 0.0
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Opens a watch of what happens after a version, until the API server ends it after so many seconds; the block
        begins when it was accepted. Events that come soon after others are late by up to `gathering` seconds. Raises
        ExpiredError when the version is too old, and SilentError when nothing arrives for some time."""
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(seconds)),
            ("resourceVersion", since),
        ]
        if scope.selector:
            query.append(("labelSelector", scope.selector))
        path = scope.resource.path(namespace=scope.namespace)
        what, accept = f"WATCH {path}", _METADATA if scope.metadata_only else "application/json"
        with _translated(what, _SECONDS):
            async with asyncio.timeout(_SECONDS):
                response = await self._send("GET", path, query, accept=accept)
            async with response:
                if response.status >= 300:
                    raise refusal(response.status, await response.read(), what, retry_after=_retry_after(response))
                async with contextlib.aclosing(_events(response, what, gathering)) as events:
                    yield events

    async def discovers(self, resource: Resource) -> bool:
        """Whether the API server describes a kind of object; it may serve the objects some time before."""
        found = read_object(await self._request("GET", "/apis"), "GET /apis")
        groups = {group.get("name") for group in found.get("groups") or ()}
        if resource.group not in groups:
            return False
        path = f"/apis/{resource.api_version}"
        found = read_object(await self._request("GET", path), f"GET {path}")
        return resource.plural in {kind.get("name") for kind in found.get("resources") or ()}

    async def read(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        """Returns an object."""
        path = resource.path(name, namespace=namespace)
        payload = await self._request("GET", path, named=Named(resource.plural, name))
        return read_stored(payload, f"GET {path}", resource, name)

    async def create(self, resource: Resource, body: Json, *, namespace: str = "") -> Json:
        """Creates an object; returns it as the API server stored it."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        path = resource.path(namespace=namespace)
        payload = await self._request("POST", path, body=body)
        return read_stored(payload, f"POST {path}", resource, body["metadata"].get("name", ""))

    async def replace(self, resource: Resource, body: Json) -> Json:
        """Replaces an object as a whole. Raises ConflictError when it is no longer in the resourceVersion of `body`."""
        metadata = body["metadata"]
        name = metadata["name"]
        path = resource.path(name, namespace=metadata.get("namespace", ""))
        payload = await self._request("PUT", path, named=Named(resource.plural, name), body=body)
        return read_stored(payload, f"PUT {path}", resource, name)

    async def apply(
        self,
        resource: Resource,
        body: Json,
        *,
        subresource: str = "",
        manager: str = FIELD_MANAGER,
        force: bool = True,
    ) -> Json:
        """Creates or changes an object by server-side apply.

        A field that `manager` applied before and that is missing now is removed. With `metadata.uid`, only the object
        with that UID is changed: when it is gone, the API server answers with a conflict instead of creating another.
        Without `force`, a field that somebody else manages is a conflict.
        """
        name = body["metadata"]["name"]
        path = resource.path(name, subresource=subresource)
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        query = [("fieldManager", manager), ("force", "true" if force else "false")]
        return await self._patch(resource, name, path, query, body, "application/apply-patch+yaml")

    async def merge(self, resource: Resource, name: str, patch: Json, *, subresource: str = "") -> Json:
        """Changes the fields that the patch has; null deletes one, lists are replaced whole. A field that the CRD does
        not have is dropped, where server-side apply would be refused."""
        path, query = resource.path(name, subresource=subresource), [("fieldManager", FIELD_MANAGER)]
        return await self._patch(resource, name, path, query, patch, "application/merge-patch+json")

    async def delete(self, resource: Resource, name: str, uid: str) -> None:
        """Deletes the object with that UID, and no other one of that name."""
        body = {"preconditions": {"uid": uid}}
        await self._request("DELETE", resource.path(name), named=Named(resource.plural, name), body=body)

    async def _patch(
        self, resource: Resource, name: str, path: str, query: list[tuple[str, str]], body: Json, content_type: str
    ) -> Json:
        named = Named(resource.plural, name)
        payload = await self._request("PATCH", path, query, named=named, body=body, content_type=content_type)
        return read_stored(payload, f"PATCH {path}", resource, name)

    async def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None = None,
        *,
        named: Named | None = None,
        body: Json | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> bytes:
        what = f"{method} {path}"
        async with contextlib.AsyncExitStack() as stack:
            seconds = _SECONDS
            if self._permit is not None and method != "GET":
                seconds = min(seconds, await stack.enter_async_context(self._permit.writing()))
                # when the time is over, the API server must not execute a write that has waited there
                query = [*(query or ()), ("timeout", f"{seconds:.3f}s")]
            with _translated(what, seconds):
                async with asyncio.timeout(seconds):
                    response = await self._send(
                        method, path, query, body=body, accept=accept, content_type=content_type
                    )
                    async with response:
                        payload = await response.read()
        if response.status >= 300:
            raise refusal(response.status, payload, what, retry_after=_retry_after(response), named=named)
        return payload

    async def _send(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None,
        *,
        body: Json | None = None,
        accept: str,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": accept, "Content-Type": content_type}
        return await self._connection.send(method, path, query, body=body, headers=headers)


@contextlib.contextmanager
def _translated(what: str, seconds: float) -> Iterator[None]:
    """Turns the client's errors into ours; `what` names the request in them, which may take some seconds."""
    try:
        yield
    except TimeoutError as error:
        raise UnavailableError(f"{what}: no answer within {seconds:.3g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise UnavailableError(f"{what}: {error or type(error).__name__}") from error


def _retry_after(response: aiohttp.ClientResponse) -> str:
    return response.headers.get("Retry-After", "")


async def _events(response: aiohttp.ClientResponse, what: str, gathering: float) -> AsyncGenerator[WatchEvent, None]:
    """The events of a watch."""
    rest = b""
    while chunk := await _read_some(response, what):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield read_event(line, what)
        if gathering:
            await gather(response, gathering)


async def _read_some(response: aiohttp.ClientResponse, what: str) -> bytes:
    """The next bytes of a watch; none when it has ended."""
    try:
        async with asyncio.timeout(_SILENCE_SECONDS):
            return await response.content.readany()
    except TimeoutError as error:
        raise SilentError(f"{what}: nothing arrived for {_SILENCE_SECONDS:.0f} s") from error

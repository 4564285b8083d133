"""A thin client of the API server: a method for each verb, typed errors, and a timeout for every request.

It does not limit the rate of requests: the Go client's default limit costs 200 ms per claim, and the server limits the
rate itself.
"""

import json
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode

from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.errors import ClusterConfigError
from dracpu_agent.http1.client import HttpClient, HttpTimeoutError, Limits
from dracpu_agent.http1.message import HttpError
from dracpu_agent.http1.origin import OriginError
from dracpu_api.answers import WatchEvent, read_event, read_list, read_object, read_stored, refusal
from dracpu_api.errors import ApiError, Named, UnavailableError
from dracpu_api.resources import Json, JsonObject, Resource

FIELD_MANAGER: Final = "dracpu-agent"

_REQUEST_TIMEOUT: Final = 10.0
_LIMITS: Final = Limits(
    connections=16,  # each costs a TLS handshake: with 60 claims in one call, waiting is cheaper
    connect_seconds=5.0,
    idle_seconds=80.0,  # the API server closes idle connections after 90 s
)
WATCH_SECONDS: Final = (300, 600)  # how long a watch lasts; random, so that the agents' watches spread out
_WATCH_SILENCE: Final = 90.0  # the server sends a bookmark every minute: a longer silence means a dead connection

_JSON: Final = "application/json"
_METADATA_ONLY: Final = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"


class ApiClient:
    """A client of one API server. Use it in `async with`, or `close` it."""

    def __init__(
        self,
        access: ApiAccess,
        *,
        version: str,
        request_timeout: float = _REQUEST_TIMEOUT,
        watch_silence: float = _WATCH_SILENCE,
    ) -> None:
        self._token = access.token
        self._user_agent = f"{FIELD_MANAGER}/{version}"
        self._request_timeout = request_timeout
        self._watch_silence = watch_silence
        try:
            self._http = HttpClient(access.server, tls=access.tls, server_name=access.server_name, limits=_LIMITS)
        except OriginError as error:
            raise ClusterConfigError(str(error)) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections; watches end with an error, and later requests fail."""
        await self._http.close()

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        metadata_only: bool = False,
        from_cache: bool = False,
        seconds: float | None = None,
    ) -> JsonObject:
        """Reads an object within `seconds` (default: the client's request timeout). `from_cache` accepts what the API
        server has in its memory, which may be older, and spares etcd the read."""
        accept = _METADATA_ONLY if metadata_only else _JSON
        path, what = resource.path(name, namespace=namespace), f"get {resource.plural} {name}"
        named = Named(resource.plural, name)
        query = {"resourceVersion": "0"} if from_cache else None
        payload = await self._call("GET", path, what, named=named, query=query, accept=accept, seconds=seconds)
        return read_stored(payload, what, resource, name)

    async def list(self, resource: Resource, *, field_selector: str = "") -> JsonObject:
        """Lists all matching objects without pages: the agent lists only the few objects of its own node."""
        query = {"fieldSelector": field_selector} if field_selector else {}
        what = f"list {resource.plural}"
        return read_list(await self._call("GET", resource.path(), what, query=query), what, resource)

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False
    ) -> JsonObject:
        """Creates an object, and returns it as the server stored it or, in a dry run, would store it."""
        query = {"dryRun": "All"} if dry_run else {}
        path, what = resource.path(namespace=namespace), f"create {resource.plural}"
        payload = await self._call("POST", path, what, query=query, body=body)
        if dry_run:  # nothing was stored, so that there is no resourceVersion
            return read_object(payload, what)
        return read_stored(payload, what, resource, body["metadata"].get("name", ""))

    async def replace(self, resource: Resource, body: JsonObject) -> JsonObject:
        """Replaces an object; metadata.resourceVersion, if set, must be the current one."""
        name = body["metadata"]["name"]
        what = f"update {resource.plural} {name}"
        payload = await self._call("PUT", resource.path(name), what, named=Named(resource.plural, name), body=body)
        return read_stored(payload, what, resource, name)

    async def merge_patch(
        self, resource: Resource, name: str, patch: JsonObject, *, subresource: str = ""
    ) -> JsonObject:
        """Changes the fields in the patch; null deletes a field, lists are replaced as a whole."""
        what = f"patch {resource.plural} {name}"
        payload = await self._call(
            "PATCH",
            resource.path(name, subresource=subresource),
            what,
            named=Named(resource.plural, name),
            body=patch,
            content_type="application/merge-patch+json",
        )
        return read_stored(payload, what, resource, name)

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Json],
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> JsonObject:
        """Changes parts of an object one by one, and leaves the text of all others as it is."""
        what = f"patch {resource.plural} {name}"
        payload = await self._call(
            "PATCH",
            resource.path(name, namespace=namespace, subresource=subresource),
            what,
            named=Named(resource.plural, name),
            body=operations,
            content_type="application/json-patch+json",
        )
        return read_stored(payload, what, resource, name)

    async def apply(
        self,
        resource: Resource,
        body: JsonObject,
        *,
        namespace: str = "",
        subresource: str = "",
        manager: str = FIELD_MANAGER,
    ) -> JsonObject:
        """Server-side apply: the manager owns the fields in the body; owned fields that the body omits are deleted."""
        name = body["metadata"]["name"]
        what = f"apply {resource.plural} {name}"
        payload = await self._call(
            "PATCH",
            resource.path(name, namespace=namespace, subresource=subresource),
            what,
            named=Named(resource.plural, name),
            query={"fieldManager": manager, "force": "true"},
            body={"apiVersion": resource.api_version, "kind": resource.kind, **body},
            content_type="application/apply-patch+yaml",  # JSON is YAML
        )
        return read_stored(payload, what, resource, name)

    async def delete(self, resource: Resource, name: str, *, uid: str, resource_version: str) -> None:
        """Deletes an object if it still has the given UID and resourceVersion."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        what, named = f"delete {resource.plural} {name}", Named(resource.plural, name)
        await self._call("DELETE", resource.path(name), what, named=named, body=body)

    async def watch(
        self, resource: Resource, *, resource_version: int, field_selector: str = ""
    ) -> AsyncGenerator[WatchEvent, None]:
        """Events after a resourceVersion, until the server ends the watch; ExpiredError if that is too old.

        Iterate inside `contextlib.aclosing`, which closes the connection as soon as the loop is left.
        """
        what = f"watch {resource.plural}"
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(resource_version),
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),  # noqa: S311 - jitter
        } | ({"fieldSelector": field_selector} if field_selector else {})
        target, headers = _target(resource.path(), query), self._headers()
        try:
            async with self._http.stream("GET", target, headers=headers, silence=self._watch_silence) as answer:
                if answer.status >= 300:
                    raise _refusal(answer.status, answer.headers, await answer.read(), what)
                lines = LineSplitter()
                async for chunk in answer:
                    for line in lines.feed(chunk):
                        yield read_event(line, what)
        except HttpError as error:
            raise _unavailable(error, what) from error

    async def _call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        named: Named | None = None,
        query: Mapping[str, str] | None = None,
        body: JsonObject | Sequence[Json] | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        seconds: float | None = None,
    ) -> bytes:
        headers = self._headers(accept) | ({} if body is None else {"Content-Type": content_type})
        try:
            answer = await self._http.request(
                method,
                _target(path, query),
                headers=headers,
                body=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
                seconds=self._request_timeout if seconds is None else seconds,
            )
        except HttpError as error:
            raise _unavailable(error, what) from error
        if answer.status >= 300:
            raise _refusal(answer.status, answer.headers, answer.body, what, named)
        return answer.body

    def _headers(self, accept: str = _JSON) -> dict[str, str]:
        headers = {"User-Agent": self._user_agent, "Accept": accept}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {_read(self._token)}"
        return headers


class LineSplitter:
    """Splits received bytes into lines of any length: an object may exceed the line limits of asyncio's readers."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without line ends and empty lines."""
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        if not others:
            return []
        lines = [b"".join(self._parts), *others[:-1]]
        self._parts = [others[-1]]
        return [line for line in lines if line]


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _read(token: Callable[[], str]) -> str:
    try:
        return token()
    except ClusterConfigError as error:  # temporary, unlike at the start of the agent
        raise UnavailableError(str(error), reason="TokenUnreadable") from error


def _unavailable(error: HttpError, what: str) -> UnavailableError:
    reason = "Timeout" if isinstance(error, HttpTimeoutError) else "ConnectionFailed"
    return UnavailableError(f"{what}: {error}", reason=reason)


def _refusal(
    status: int, headers: Mapping[str, str], payload: bytes, what: str, named: Named | None = None
) -> ApiError:
    return refusal(status, payload, what, retry_after=headers.get("retry-after", ""), named=named)

"""API client of all simulated components and of the stories, for the built-in API server and for a real one."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import aiohttp

from dracpu_agent.cluster.access import from_kubeconfig
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import JsonObject, Key, Resource, key_of

PatchKind = Literal["merge", "strategic"]
MERGE: Final = "merge"
STRATEGIC: Final = "strategic"
MANAGER: Final = "dracpu-sandbox"

_CONTENT_TYPES: Final[Mapping[PatchKind, str]] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_REQUEST_SECONDS: Final = 30.0
_WATCH_SECONDS: Final = 300
_RETRY_SECONDS: Final = 0.2
_LONGEST_LINE: Final = 16 * 2**20


class KubeError(SandboxError):
    """The API server refused a request; its Status has the `code` and the `reason`."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class NotFoundError(KubeError):
    """The object does not exist."""


class ConflictError(KubeError):
    """Another client has changed the object, or the object exists already."""


class ExpiredError(KubeError):
    """The requested revision is too old."""


class InvalidError(KubeError):
    """The object is invalid; the message names the reasons."""


class UnreachableError(SandboxError):
    """The API server does not answer."""


_ERRORS: Final[Mapping[int, type[KubeError]]] = {
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
}


@dataclass(frozen=True, slots=True)
class Event:
    """A change of an object. SYNCED follows once after all existing objects, without an object."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "SYNCED"]
    object: JsonObject


class KubeClient:
    """A client of one API server. Use it in `async with`, or `close` it."""

    def __init__(self, server: str, tls: ssl.SSLContext | None = None, token: str = "") -> None:
        self.server = server
        self._session = aiohttp.ClientSession(
            server,
            connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=0),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
            read_bufsize=_LONGEST_LINE,
        )

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """Connects to the server of a kubeconfig's current context. Needs a running loop."""
        access = from_kubeconfig(path)
        return cls(access.server, access.tls() if access.tls else None, access.token() if access.token else "")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._session.close()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> JsonObject:
        """Returns one object."""
        return await self._request("GET", _path(resource, name, namespace))

    async def list(self, resource: Resource, namespace: str = "", *, fields: str = "") -> list[JsonObject]:
        """Returns all objects that the field selector selects."""
        return (await self._list(resource, namespace, fields))["items"]  # type: ignore[no-any-return]  # JSON

    async def create(
        self, resource: Resource, body: JsonObject, namespace: str = "", subresource: str = ""
    ) -> JsonObject:
        """Creates an object, or posts to a subresource of the object that `body` names."""
        name = body["metadata"]["name"] if subresource else ""
        return await self._request("POST", _path(resource, name, _namespace(body, namespace), subresource), body=body)

    async def replace(self, resource: Resource, body: JsonObject, subresource: str = "") -> JsonObject:
        """Replaces an object that was read before; raises ConflictError when it has changed since."""
        path = _path(resource, body["metadata"]["name"], _namespace(body), subresource)
        return await self._request("PUT", path, body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        kind: PatchKind = MERGE,
        manager: str = MANAGER,
    ) -> JsonObject:
        """Changes parts of an object."""
        path = _path(resource, name, namespace, subresource)
        return await self._request("PATCH", path, {"fieldManager": manager}, patch, _CONTENT_TYPES[kind])

    async def patch_status(
        self, resource: Resource, body: JsonObject, status: JsonObject, *, manager: str = MANAGER
    ) -> JsonObject:
        """Changes parts of an object's status; raises KubeError when another object has taken its name."""
        metadata = body["metadata"]
        return await self.patch(
            resource,
            metadata["name"],
            {"metadata": {"uid": metadata["uid"]}, "status": status},
            _namespace(body),
            subresource="status",
            kind=STRATEGIC,
            manager=manager,
        )

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, grace: int | None = None, uid: str = ""
    ) -> None:
        """Deletes an object; with a UID, only when the object has this UID."""
        body: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        if uid:
            body["preconditions"] = {"uid": uid}
        await self._request("DELETE", _path(resource, name, namespace), body=body)

    async def follow(self, resource: Resource, namespace: str = "", *, fields: str = "") -> AsyncGenerator[Event]:
        """Yields all existing objects, then every change. Watches again when a watch ends or its history is lost."""
        known: dict[Key, JsonObject] = {}
        version, synced = "", False
        while True:
            try:
                if not version:
                    listed = await self._list(resource, namespace, fields)
                    for event in _differences(known, {key_of(item): item for item in listed["items"]}):
                        yield event
                    version = listed["metadata"]["resourceVersion"]
                    if not synced:
                        synced = True
                        yield Event("SYNCED", {})
                async for change in self._watch(resource, namespace, fields, version):
                    version = change["object"]["metadata"]["resourceVersion"]
                    if change["type"] == "BOOKMARK":
                        continue
                    if change["type"] == "DELETED":
                        known.pop(key_of(change["object"]), None)
                    else:
                        known[key_of(change["object"])] = change["object"]
                    yield Event(change["type"], change["object"])
            except ExpiredError:
                version = ""
            except (KubeError, UnreachableError) as error:
                if not synced or (isinstance(error, KubeError) and error.code < 500):
                    raise
                await asyncio.sleep(_RETRY_SECONDS)

    async def _list(self, resource: Resource, namespace: str, fields: str) -> JsonObject:
        return await self._request("GET", _path(resource, "", namespace), _selector(fields))

    async def _watch(self, resource: Resource, namespace: str, fields: str, version: str) -> AsyncGenerator[JsonObject]:
        query = _selector(fields) | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        timeout = aiohttp.ClientTimeout(total=_WATCH_SECONDS + _REQUEST_SECONDS, sock_connect=_REQUEST_SECONDS)
        try:
            async with self._session.get(_path(resource, "", namespace), params=query, timeout=timeout) as answer:
                await _refuse(answer)
                async for line in answer.content:
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        raise _error(change["object"])
                    yield change
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise UnreachableError(f"{self.server} has ended a watch: {error or type(error).__name__}") from error

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> JsonObject:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": content_type}
        try:
            async with self._session.request(method, path, params=query, data=data, headers=headers) as answer:
                await _refuse(answer)
                return await answer.json()  # type: ignore[no-any-return]  # JSON
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise UnreachableError(f"{self.server} does not answer: {error or type(error).__name__}") from error


class Mirror:
    """A copy of all objects of one resource, kept up to date while `run` runs."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        *,
        namespace: str = "",
        fields: str = "",
        on_change: Callable[[Event], object] = lambda event: None,
    ) -> None:
        self.items: dict[Key, JsonObject] = {}  # by namespace and name
        self.ready = asyncio.Event()
        self._follow = partial(client.follow, resource, namespace, fields=fields)
        self._on_change = on_change
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async for event in self._follow():
            match event.type:
                case "SYNCED":
                    self.ready.set()
                case "DELETED":
                    self.items.pop(key_of(event.object), None)
                case _:
                    self.items[key_of(event.object)] = event.object
            self._on_change(event)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def get(self, name: str, namespace: str = "") -> JsonObject | None:
        """Returns one object, or None."""
        return self.items.get((namespace, name))

    async def until(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Waits until the condition holds; it is evaluated after each change."""
        async with asyncio.timeout(seconds):
            while not (self.ready.is_set() and condition()):
                await self._changed.wait()


def _path(resource: Resource, name: str, namespace: str, subresource: str = "") -> str:
    return resource.path(name, namespace=namespace if resource.namespaced else "", subresource=subresource)


def _namespace(body: JsonObject, otherwise: str = "") -> str:
    return str(body["metadata"].get("namespace") or otherwise)


def _selector(fields: str) -> dict[str, str]:
    return {"fieldSelector": fields} if fields else {}


def _differences(known: dict[Key, JsonObject], listed: Mapping[Key, JsonObject]) -> list[Event]:
    """Returns the changes between two lists, and brings `known` up to date."""
    events = [Event("DELETED", item) for key, item in known.items() if key not in listed]
    for key, item in listed.items():
        before = known.get(key)
        if before is None:
            events.append(Event("ADDED", item))
        elif before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            events.append(Event("MODIFIED", item))
    known.clear()
    known.update(listed)
    return events


async def _refuse(answer: aiohttp.ClientResponse) -> None:
    if answer.status < 400:
        return
    text = await answer.text()
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    raise _error({"code": answer.status, "message": text.strip()} | status)


def _error(status: JsonObject) -> KubeError:
    code = int(status.get("code") or 500)
    return _ERRORS.get(code, KubeError)(code, str(status.get("reason") or ""), str(status.get("message") or code))

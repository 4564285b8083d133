"""The API server: lists, server-side apply, deletion, Events. Holds no policy; errors come out typed.

Of kubernetes_asyncio only the connection is used (credentials, TLS, proxies): its models would turn 5,000 objects into
Python objects of which three fields are looked at.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.client.exceptions import ApiException

from dracpu_api.resources import CONFIGS, CPU_NODES, EVENTS, NODES, Resource
from dracpu_api.settings import CpuNodeSpec, encode_spec
from dracpu_operator.decide.records import Config, Node
from dracpu_operator.decide.summary import Announcement
from dracpu_operator.errors import ApiError, UnavailableError, api_error

Json = Mapping[str, Any]

FIELD_MANAGER: Final = "dracpu-operator"
MANAGED_BY: Final = {"app.kubernetes.io/managed-by": FIELD_MANAGER}

_PAGE: Final = 500  # objects a list answer: what client-go asks for
_SECONDS: Final = 30.0
_WORDS: Final = 200  # bytes of an answer that is no Status; a proxy's may be a whole page
_NOTE_BYTES: Final = 1024  # events.k8s.io/v1 refuses longer notes
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_WATCH_SECONDS: Final = 240  # kubernetes_asyncio: no request takes longer than 300 s
_SILENCE_SECONDS: Final = 90.0  # the API server sends a bookmark each minute


class Cluster:
    """A connection to the API server, as an async context manager."""

    def __init__(self, configuration: Configuration, *, instance: str) -> None:
        self._configuration = configuration
        self._instance = instance  # who reports, in Events: the pod's name
        self._client: ApiClient | None = None

    async def __aenter__(self) -> Self:
        # made inside of the running loop, as its session has to be
        self._client = ApiClient(self._configuration)
        self._client.user_agent = FIELD_MANAGER
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.close()

    async def items(self, resource: Resource, *, metadata_only: bool = False) -> AsyncIterator[Json]:
        """All objects of a kind, in all namespaces, page by page."""
        async for page in self._pages(resource, metadata_only=metadata_only):
            for item in page.get("items") or ():
                yield item

    async def snapshot(self, resource: Resource) -> tuple[list[Json], str]:
        """The metadata of all objects of a kind, and the version that a watch goes on from."""
        found: list[Json] = []
        version = ""
        async for page in self._pages(resource, metadata_only=True):
            found += page.get("items") or ()
            version = page["metadata"]["resourceVersion"]
        return found, version

    async def watch(self, resource: Resource, since: str) -> AsyncIterator[Json]:
        """What happens to objects of a kind since a version, with their metadata alone; ends some time. Raises
        ExpiredError where that was too long ago."""
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(_WATCH_SECONDS)),
            ("resourceVersion", since),
        ]
        what = f"WATCH {resource.path()}"
        with _translated(what):
            async with asyncio.timeout(_SECONDS):
                response = await self._send("GET", resource.path(), query, accept=_METADATA)
            async with response:
                rest = b"" if response.status < 400 else await response.read()
                _check(response.status, rest, what)
                while chunk := await _read_some(response):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield _event(line, what)

    async def read(self, resource: Resource, name: str) -> Json:
        """One object without a namespace."""
        return await self._request("GET", resource.path(name))

    async def apply_cpu_node(self, node: Node, spec: CpuNodeSpec, *, uid: str | None) -> Json:
        """Makes a node's CpuNode (`uid` None), or changes the one with that UID: were it gone, the API server answers
        with a conflict instead of making another."""
        owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node.name, "uid": node.uid}
        metadata = {"name": node.name, "labels": MANAGED_BY, "ownerReferences": [owner]}
        if uid is not None:
            metadata["uid"] = uid
        fields = encode_spec(spec)
        applied = await self._apply(CPU_NODES, metadata, {"spec": fields})
        if len(applied["spec"].get("outstanding") or ()) <= len(spec.outstanding):
            return applied
        # what somebody else has put onto the list stays there in a server-side apply, though he may never come back
        patch = {"metadata": {"uid": applied["metadata"]["uid"]}, "spec": {"outstanding": fields["outstanding"]}}
        return await self._request(
            "PATCH",
            CPU_NODES.path(node.name),
            [("fieldManager", FIELD_MANAGER)],
            body=patch,
            content_type="application/merge-patch+json",
        )

    async def delete_cpu_node(self, name: str, uid: str) -> None:
        """Deletes that very CpuNode, not another of its name."""
        await self._request("DELETE", CPU_NODES.path(name), body={"preconditions": {"uid": uid}})

    async def apply_status(self, config: Config, status: Json) -> Json:
        """Writes a config's status; where fields are missing that stood there, they go away."""
        metadata = {"name": config.name, "uid": config.uid}
        return await self._apply(CONFIGS, metadata, {"status": status}, "status")

    async def apply_config(self, manifest: Json, *, manager: str, uid: str | None) -> Json:
        """Makes a config (`uid` None), or changes the one with that UID; fields that others own are a conflict."""
        metadata = {**manifest["metadata"], **({"uid": uid} if uid else {})}
        return await self._apply(CONFIGS, metadata, {"spec": manifest["spec"]}, manager=manager, force=False)

    async def announce(self, config: Config, announcement: Announcement) -> None:
        """An Event about a config. Objects without a namespace have theirs in "default"."""
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{config.name[:230].rstrip('.-')}.{secrets.token_hex(8)}", "namespace": "default"},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": FIELD_MANAGER,
            "reportingInstance": self._instance[:128],
            "type": announcement.severity,
            "reason": announcement.reason,
            "action": "Reconcile",
            "note": announcement.note.encode()[:_NOTE_BYTES].decode(errors="ignore"),
            "regarding": {
                "apiVersion": CONFIGS.api_version,
                "kind": CONFIGS.kind,
                "name": config.name,
                "uid": config.uid,
            },
        }
        await self._request("POST", EVENTS.path(namespace="default"), body=body)

    async def _apply(
        self,
        resource: Resource,
        metadata: Json,
        fields: Json,
        subresource: str = "",
        *,
        manager: str = FIELD_MANAGER,
        force: bool = True,
    ) -> Json:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
        path = resource.path(str(metadata["name"]), subresource=subresource)
        query = [("fieldManager", manager), ("force", "true" if force else "false")]
        return await self._request("PATCH", path, query, body=body, content_type="application/apply-patch+yaml")

    async def _pages(self, resource: Resource, *, metadata_only: bool) -> AsyncIterator[Json]:
        query = [("limit", str(_PAGE))]
        while True:
            accept = _METADATA_LIST if metadata_only else "application/json"
            page = await self._request("GET", resource.path(), query, accept=accept)
            yield page
            onward = (page.get("metadata") or {}).get("continue")
            if not onward:
                return
            query = [("limit", str(_PAGE)), ("continue", onward)]

    async def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None = None,
        *,
        body: Json | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> Json:
        what = f"{method} {path}"
        with _translated(what):
            async with asyncio.timeout(_SECONDS):
                response = await self._send(method, path, query, body=body, accept=accept, content_type=content_type)
                async with response:
                    payload = await response.read()
        _check(response.status, payload, what)
        answer = _decoded(payload)
        if not isinstance(answer, dict):
            raise UnavailableError(f"{what}: the answer is not a JSON object")
        return answer

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
        assert self._client is not None
        response: aiohttp.ClientResponse = await self._client.call_api(
            path,
            method,
            query_params=query,
            header_params={"Accept": accept, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
        )
        return response


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise UnavailableError(f"{what}: no answer within {_SECONDS:.0f} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise UnavailableError(f"{what}: {error or type(error).__name__}") from error
    except ApiException as error:
        raise ApiError(f"{what}: {error.reason}") from error


def _check(status: int, payload: bytes, what: str) -> None:
    """Raises what an answer with an error says."""
    if status < 400:
        return
    answer = _decoded(payload)
    # a path that is not served is answered in plain text
    said = answer if isinstance(answer, dict) else {"message": payload[:_WORDS].decode(errors="replace").strip()}
    raise api_error(status, said, what=what)


def _event(line: bytes, what: str) -> Json:
    event = _decoded(line)
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise UnavailableError(f"{what}: what came is no event")
    if event["type"] == "ERROR":
        raise api_error(event["object"].get("code", 500), event["object"], what=what)
    return event


async def _read_some(response: aiohttp.ClientResponse) -> bytes:
    """What has come; nothing when there will be no more, or when there has been nothing for suspiciously long."""
    try:
        async with asyncio.timeout(_SILENCE_SECONDS):
            return await response.content.readany()
    except TimeoutError:
        return b""


def _decoded(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError:
        return None

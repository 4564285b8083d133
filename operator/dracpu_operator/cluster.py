"""The API server: lists, server-side apply, deletion, Events. Holds no policy; errors come out typed.

Of kubernetes_asyncio only the connection is used (credentials, TLS, proxies): its models would turn 5,000 objects into
Python objects of which three fields are looked at.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.client.exceptions import ApiException

from dracpu_api.names import API_GROUP, API_VERSION
from dracpu_api.settings import CpuNodeSpec, encode_spec
from dracpu_operator.errors import ApiError, UnavailableError, api_error
from dracpu_operator.model import Config, Node
from dracpu_operator.summary import Announcement

Json = Mapping[str, Any]

FIELD_MANAGER: Final = "dracpu-operator"
MANAGED_BY: Final = {"app.kubernetes.io/managed-by": FIELD_MANAGER}

_PAGE: Final = 500  # objects a list answer: what client-go asks for
_SECONDS: Final = 30.0
_NOTE_BYTES: Final = 1024  # events.k8s.io/v1 refuses longer notes
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, and where the API server keeps it."""

    group: str  # "" for the core API
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """As it stands in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *parts: str, namespace: str = "") -> str:
        """The URL path of the collection, of an object or of its subresource."""
        root = ["apis", self.group] if self.group else ["api"]
        place = ["namespaces", namespace] if namespace else []
        return "".join(f"/{quote(part, safe='')}" for part in [*root, self.version, *place, self.plural, *parts])


NODES: Final = Resource("", "v1", "nodes", "Node")
CONFIGS: Final = Resource(API_GROUP, API_VERSION, "cpudriverconfigs", "CpuDriverConfig")
CPU_NODES: Final = Resource(API_GROUP, API_VERSION, "cpunodes", "CpuNode")
CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")


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
        query = [("limit", str(_PAGE))]
        while True:
            accept = _METADATA_ONLY if metadata_only else "application/json"
            answer = await self._request("GET", resource.path(), query, accept=accept)
            for item in answer.get("items") or ():
                yield item
            onward = (answer.get("metadata") or {}).get("continue")
            if not onward:
                return
            query = [("limit", str(_PAGE)), ("continue", onward)]

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
        return await self._apply(CPU_NODES, metadata, {"spec": encode_spec(spec)})

    async def delete_cpu_node(self, name: str, uid: str) -> None:
        """Deletes that very CpuNode, not another of its name."""
        await self._request("DELETE", CPU_NODES.path(name), body={"preconditions": {"uid": uid}})

    async def apply_status(self, config: Config, status: Json) -> Json:
        """Writes a config's status; where fields are missing that stood there, they go away."""
        metadata = {"name": config.name, "uid": config.uid}
        return await self._apply(CONFIGS, metadata, {"status": status}, "status")

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

    async def _apply(self, resource: Resource, metadata: Json, fields: Json, subresource: str = "") -> Json:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
        parts = [str(metadata["name"]), *([subresource] if subresource else [])]
        query = [("fieldManager", FIELD_MANAGER), ("force", "true")]
        return await self._request(
            "PATCH", resource.path(*parts), query, body=body, content_type="application/apply-patch+yaml"
        )

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
        assert self._client is not None
        what = f"{method} {path}"
        try:
            async with asyncio.timeout(_SECONDS):
                response = await self._client.call_api(
                    path,
                    method,
                    query_params=query,
                    header_params={"Accept": accept, "Content-Type": content_type},
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                )
                async with response:
                    payload = await response.read()
        except TimeoutError as error:
            raise UnavailableError(f"{what}: no answer within {_SECONDS:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnavailableError(f"{what}: {error or type(error).__name__}") from error
        except ApiException as error:
            raise ApiError(f"{what}: {error.reason}") from error
        answer = _decoded(payload)
        if response.status >= 400:
            raise api_error(response.status, answer, what=what)
        if not isinstance(answer, dict):
            raise UnavailableError(f"{what}: the answer is not a JSON object")
        return answer


def _decoded(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError:
        return None

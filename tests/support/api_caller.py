"""A plain HTTP client for the sandbox's API server."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp

from dracpu_sandbox.apiserver.server import ApiServer

JsonObject = dict[str, Any]

PATCHES = {
    "apply": "application/apply-patch+yaml",
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/things.dev/v1/things"


@dataclass(frozen=True)
class Answered:
    """An answer of the server."""

    code: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


class Caller:
    """An API server and a client that sends requests unchanged."""

    def __init__(self, *crds: JsonObject) -> None:
        self.server = ApiServer(crds=crds)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        self._session = aiohttp.ClientSession(self.server.url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()
        await self.server.__aexit__(kind, error, trace)

    @property
    def session(self) -> aiohttp.ClientSession:
        """Returns the HTTP session, for requests that `call` does not support."""
        assert self._session is not None
        return self._session

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Answered:
        """Sends a request; a body of bytes is sent unchanged."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.request(method, path, params=query, data=data, headers=sent) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return Answered(answer.status, json.loads(text) if is_json else text, dict(answer.headers))

    async def get(self, path: str, **query: str) -> Any:
        """Reads an object or a list."""
        return await self._successful("GET", path, None, query)

    async def create(self, path: str, body: JsonObject, **query: str) -> Any:
        """Creates an object."""
        return await self._successful("POST", path, body, query)

    async def replace(self, path: str, body: JsonObject, **query: str) -> Any:
        """Replaces an object."""
        return await self._successful("PUT", path, body, query)

    async def patch(self, path: str, body: Any, how: str = "merge", **query: str) -> Any:
        """Changes an object."""
        return await self._successful("PATCH", path, body, query, PATCHES[how])

    async def apply(self, path: str, body: JsonObject, manager: str, **query: str) -> Any:
        """Applies an object on the server's side."""
        return await self.patch(path, body, "apply", fieldManager=manager, **query)

    async def delete(self, path: str, body: JsonObject | None = None, **query: str) -> Any:
        """Deletes an object."""
        return await self._successful("DELETE", path, body, query)

    async def refused(self, method: str, path: str, body: Any = None, how: str = "", **query: str) -> JsonObject:
        """Sends a request that must be refused, and returns the Status object."""
        answered = await self.call(method, path, body, headers={"Content-Type": PATCHES[how]} if how else {}, **query)
        assert answered.code >= 400, answered
        assert answered.body["kind"] == "Status"
        assert answered.body["code"] == answered.code
        refusal: JsonObject = answered.body
        return refusal

    async def names(self, path: str, **query: str) -> list[str]:
        """Returns the names of the objects in a list."""
        return [item["metadata"]["name"] for item in (await self.get(path, **query))["items"]]

    async def _successful(
        self, method: str, path: str, body: Any, query: Mapping[str, str], content_type: str = ""
    ) -> Any:
        headers = {"Content-Type": content_type} if content_type else {}
        answered = await self.call(method, path, body, headers=headers, **query)
        assert answered.code < 300, answered.body
        return answered.body


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> JsonObject:
    """Builds a ConfigMap."""
    return {"metadata": {"name": name, **metadata}, "data": dict(data or {})}


def pod(name: str = "web", *, node: str = "", grace: int | None = None, **metadata: Any) -> JsonObject:
    """Builds a pod with one container."""
    spec: JsonObject = {"containers": [{"name": "main", "image": "example"}]}
    if node:
        spec["nodeName"] = node
    if grace is not None:
        spec["terminationGracePeriodSeconds"] = grace
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def thing(name: str = "one", **spec: Any) -> JsonObject:
    """Builds an object of the kind that `THING` defines."""
    return {"apiVersion": "things.dev/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


def definition(plural: str, kind: str, schema: JsonObject, subresources: Sequence[str] = ("status",)) -> JsonObject:
    """Builds a CustomResourceDefinition in the group things.dev."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.things.dev"},
        "spec": {
            "group": "things.dev",
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {name: {} for name in subresources},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


_TEXT = {"type": "string"}
THING = definition(
    "things",
    "Thing",
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "color": {"type": "string", "default": "grey"},
                    "size": {"type": "integer"},
                    "nested": {"type": "object", "properties": {"left": _TEXT, "right": _TEXT}},
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"name": _TEXT, "use": _TEXT, "make": _TEXT},
                        },
                    },
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
                    "lines": {"type": "array", "items": _TEXT},
                },
            },
            "status": {"type": "object", "properties": {"phase": _TEXT}},
        },
    },
)

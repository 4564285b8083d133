"""OpenAPI v3: describes fields for `kubectl explain`, and formats of patches for `kubectl apply`."""

import hashlib
import json
from typing import Final

from dracpu_sandbox.apiserver.kinds.kind import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.kinds.schemas import KUBERNETES, METADATA_TYPE, REFERENCE, TYPES

# kubectl reads OpenAPI v2 before it sends a list or an unknown kind, and checks objects against it. This document
# describes no types: only the server checks. It is a protobuf message: format version, title and version of the API.
OPENAPI_V2_PATH: Final = "/openapi/v2"
OPENAPI_V2_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OPENAPI_V2: Final = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.37.0"

_PREFIX: Final = "/openapi/v3"
_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC: Final = "application/strategic-merge-patch+json"  # not for custom resources
_PARAMETERS: Final = [  # from these, kubectl concludes that the server validates fields and supports dry runs
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def openapi(registry: Registry, path: str) -> JsonObject | None:
    """Returns the index at /openapi/v3, or the document of a group's version below it; None for other paths."""
    if not path.startswith(_PREFIX):
        return None
    documents: dict[str, list[Kind]] = {}
    for kind in registry.all():
        documents.setdefault(_root(kind), []).append(kind)
    requested = path.removeprefix(_PREFIX).strip("/")
    if requested in documents:
        return _document(documents[requested])
    urls = {root: f"{_PREFIX}/{root}?hash={_fingerprint(kinds)}" for root, kinds in documents.items()}
    return None if requested else {"paths": {root: {"serverRelativeURL": url} for root, url in urls.items()}}


def _root(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _fingerprint(kinds: list[Kind]) -> str:
    """Returns a hash that changes with the document; clients cache documents by this hash."""
    content = [[KUBERNETES, kind.kind, kind.schema if kind.is_custom else None] for kind in kinds]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest().upper()


def _document(kinds: list[Kind]) -> JsonObject:
    described = {kind.type: {**_schema(kind), "x-kubernetes-group-version-kind": [_identity(kind)]} for kind in kinds}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": KUBERNETES},
        "paths": {_path(kind): {"patch": _patch(kind)} for kind in kinds},
        "components": {"schemas": {**TYPES, **described}},
    }


def _schema(kind: Kind) -> JsonObject:
    if not kind.is_custom:
        return dict(TYPES[kind.type])
    return {**kind.schema, "properties": {**kind.schema["properties"], "metadata": {"$ref": REFERENCE + METADATA_TYPE}}}


def _identity(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _path(kind: Kind) -> str:
    namespace = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"/{_root(kind)}{namespace}/{kind.plural}/{{name}}"


def _patch(kind: Kind) -> JsonObject:
    types = _PATCHES if kind.is_custom else (*_PATCHES, _STRATEGIC)
    return {
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _identity(kind),
        "parameters": _PARAMETERS,
        "requestBody": {"content": {patch: {"schema": {"type": "object"}} for patch in types}},
        "responses": {"200": {"description": "OK"}},
    }

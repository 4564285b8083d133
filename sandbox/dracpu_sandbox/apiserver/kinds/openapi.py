"""OpenAPI v3: the fields that `kubectl explain` shows, and how `kubectl apply` has to send its patches."""

import hashlib
import json
from typing import Final

from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.kinds.schemas import KUBERNETES, METADATA_TYPE, REFERENCE, TYPES

# kubectl reads version 2 before it sends a list, or what it does not know. It would check what is described here, which
# is nothing: the server checks all the same. A protobuf message with its version, and title and version of the API.
OPENAPI_V2_PATH: Final = "/openapi/v2"
OPENAPI_V2_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OPENAPI_V2: Final = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.0"

_PREFIX: Final = "/openapi/v3"
_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC: Final = "application/strategic-merge-patch+json"  # custom resources have none
_PARAMETERS: Final = [  # kubectl looks here whether the server checks fields, and tries without writing
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def openapi(registry: Registry, path: str) -> JsonObject | None:
    """The index at /openapi/v3, or the document of a group's version below it; None when there is none."""
    if not path.startswith(_PREFIX):
        return None
    documents: dict[str, list[Kind]] = {}
    for kind in registry.all():
        documents.setdefault(_root(kind), []).append(kind)
    wanted = path.removeprefix(_PREFIX).strip("/")
    if wanted in documents:
        return _document(documents[wanted])
    urls = {root: f"{_PREFIX}/{root}?hash={_fingerprint(kinds)}" for root, kinds in documents.items()}
    return None if wanted else {"paths": {root: {"serverRelativeURL": url} for root, url in urls.items()}}


def _root(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _fingerprint(kinds: list[Kind]) -> str:
    """A text that changes when the document does: clients cache documents by it."""
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

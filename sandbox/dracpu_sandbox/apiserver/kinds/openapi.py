"""OpenAPI v3: what `kubectl explain` and `kubectl apply` ask for."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import classes
from dracpu_sandbox.apiserver.kinds.listtypes import METADATA_LISTS
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry

_METADATA_CLASS: Final = "V1ObjectMeta"
_PREFIX: Final = "/openapi/v3"
_PATCHES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
# kubectl reads version 2 before it sends a list, or what it does not know. It would check what is described here, which
# is nothing: the server checks all the same. A protobuf message with its version, and title and version of the API.
OPENAPI_V2_PATH: Final = "/openapi/v2"
OPENAPI_V2_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OPENAPI_V2: Final = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.0"
_STRATEGIC: Final = "application/strategic-merge-patch+json"  # custom resources have none


def openapi(registry: Registry, path: str) -> JsonObject | None:
    """The index at /openapi/v3, or the document of a group's version below it; None when there is none."""
    if not path.startswith(_PREFIX):
        return None
    wanted = path.removeprefix(_PREFIX).strip("/")
    kinds = [kind for kind in registry.all() if _root(kind) == wanted]
    if kinds:
        return _document(kinds)
    return _index(registry) if not wanted else None


def _index(registry: Registry) -> JsonObject:
    paths: dict[str, JsonObject] = {}
    for root in dict.fromkeys(map(_root, registry.all())):
        members = [kind for kind in registry.all() if _root(kind) == root]
        paths[root] = {"serverRelativeURL": f"{_PREFIX}/{root}?hash={_fingerprint(members)}"}
    return {"paths": paths}


def _root(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _fingerprint(kinds: Iterable[Kind]) -> str:
    """Changes when the document does: clients keep documents by it."""
    told = [[kind.kind, kind.schema] for kind in kinds]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest().upper()


def _document(kinds: list[Kind]) -> JsonObject:
    schemas: dict[str, JsonObject] = {}
    paths: dict[str, JsonObject] = {}
    for kind in kinds:
        schemas |= _schemas(kind)
        paths |= _paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def component_name(kind: Kind) -> str:
    """The name of a kind's schema: reversed group, version, kind."""
    if not kind.is_custom:
        return classes.component_name(kind.model)
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _schemas(kind: Kind) -> dict[str, JsonObject]:
    if kind.is_custom:
        schemas = {component_name(kind): _custom(kind), **classes.components(_metadata_alone(kind))}
    else:
        schemas = classes.components(kind)
    name = component_name(kind)
    schemas[name] = {**schemas[name], "x-kubernetes-group-version-kind": [_identity(kind)]}
    return schemas


def _metadata_alone(kind: Kind) -> Kind:
    lists = {path[1:]: listed for path, listed in METADATA_LISTS.items()}
    return Kind(kind.group, kind.version, "", "", "", namespaced=False, model=_METADATA_CLASS, list_types=lists)


def _custom(kind: Kind) -> JsonObject:
    whole = dict(kind.schema or {})
    by_hand = dict(whole.get("properties", {}))
    typed = {
        "apiVersion": {"type": "string", "description": "The group and version that this object is written in."},
        "kind": {"type": "string", "description": "The kind of this object."},
        "metadata": {
            "description": "Name, labels, annotations and what the API server keeps of every object.",
            "allOf": [{"$ref": f"#/components/schemas/{classes.component_name(_METADATA_CLASS)}"}],
        },
    }
    return {**whole, "properties": {**by_hand, **typed}}


def _identity(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _paths(kind: Kind) -> dict[str, JsonObject]:
    root = f"/{_root(kind)}" + ("/namespaces/{namespace}" if kind.namespaced else "")
    body = {"schema": {"$ref": f"#/components/schemas/{component_name(kind)}"}}
    everything: dict[str, Any] = {"application/json": body}
    answers = {"responses": {"200": {"description": "OK", "content": everything}}}
    patches = _PATCHES if kind.is_custom else (*_PATCHES, _STRATEGIC)
    one: dict[str, JsonObject] = {}
    many: dict[str, JsonObject] = {}
    for verb, method in (("get", "get"), ("update", "put"), ("delete", "delete"), ("patch", "patch")):
        if verb in kind.verbs:
            one[method] = {"x-kubernetes-action": method, **answers}
    if "patch" in one:
        one["patch"]["requestBody"] = {"content": {patch: {"schema": {"type": "object"}} for patch in patches}}
    if "update" in kind.verbs:
        one["put"]["requestBody"] = {"content": everything}
    if "create" in kind.verbs:
        many["post"] = {"x-kubernetes-action": "post", "requestBody": {"content": everything}, **answers}
    if "list" in kind.verbs:
        many["get"] = {"x-kubernetes-action": "list", **answers}
    for operation in (*one.values(), *many.values()):
        operation["x-kubernetes-group-version-kind"] = _identity(kind)
        operation["parameters"] = _PARAMETERS
    paths = {f"{root}/{kind.plural}": many}
    return {**paths, f"{root}/{kind.plural}/{{name}}": one} if one else paths


# kubectl looks here whether the server validates fields and tries without writing
_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]

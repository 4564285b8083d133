"""Describes the built-in kinds that the sandbox serves, from what a kube-apiserver publishes about itself.

The description has names, types, required fields, and how lists merge. Sentences are left out.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

JsonObject = dict[str, Any]
Get = Callable[[str], Awaitable[JsonObject]]  # the JSON document at a path of the API server

SERVED: Final = {  # group -> the resources that the sandbox serves of it, all of them in version v1
    "": ("configmaps", "events", "namespaces", "nodes", "pods"),
    "apps": ("daemonsets",),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    "coordination.k8s.io": ("leases",),
    "events.k8s.io": ("events",),
    "resource.k8s.io": ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"),
}
_REFERENCE: Final = "#/components/schemas/"
_KEPT: Final = (
    "$ref", "type", "format", "enum", "default", "required", "properties", "additionalProperties", "items",
    "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy",
)  # fmt: skip
_NOTHING: Final[tuple[Any, ...]] = ("", 0, False, {}, [])  # defaults that only say that Go has a value for everything
_ANYTHING: Final = "x-kubernetes-preserve-unknown-fields"


async def describe(get: Get, version: str) -> str:
    """The text of the sandbox's description of built-in kinds."""
    kinds: list[JsonObject] = []
    published: JsonObject = {}
    for group, plurals in SERVED.items():
        root = f"apis/{group}/v1" if group else "api/v1"
        resources = {resource["name"]: resource for resource in (await get(f"/{root}"))["resources"]}
        schemas = (await get(f"/openapi/v3/{root}"))["components"]["schemas"]
        published |= schemas
        kinds += [_kind(group, resources[plural], schemas) for plural in plurals]
    types: JsonObject = {}
    for kind in kinds:
        _collect(kind["type"], published, types)
    return _text(version, kinds, types)


def _kind(group: str, resource: JsonObject, schemas: JsonObject) -> JsonObject:
    identity = {"group": group, "version": "v1", "kind": resource["kind"]}
    (name,) = (name for name, one in schemas.items() if one.get("x-kubernetes-group-version-kind") == [identity])
    return {
        **identity,
        "plural": resource["name"],
        "singular": resource["singularName"],
        "namespaced": resource["namespaced"],
        "short_names": resource.get("shortNames", []),
        "categories": resource.get("categories", []),
        "verbs": resource["verbs"],
        "type": name,
    }


def _collect(name: str, published: JsonObject, types: JsonObject) -> None:
    """Adds a type, and the types that its fields have."""
    if name not in types:
        types[name] = _fact(published[name], published)
        for reference in _references(types[name]):
            _collect(reference, published, types)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):  # a field may have this name, too
            yield schema["$ref"].removeprefix(_REFERENCE)
        for part in schema.values():
            yield from _references(part)


def _fact(schema: JsonObject, published: JsonObject) -> JsonObject:
    """A schema in the words of CustomResourceDefinitions, which the sandbox checks all objects with."""
    if "allOf" in schema:  # a reference that has a description and a default beside it
        (reference,) = schema["allOf"]
        schema = {**schema, **reference}
    if "$ref" in schema:
        meant = published[schema["$ref"].removeprefix(_REFERENCE)]
        return {"$ref": schema["$ref"]} if "properties" in meant else _fact(meant, published)
    if schema.get("format") == "int-or-string":
        return {"x-kubernetes-int-or-string": True}
    if "oneOf" in schema:
        return {"type": "string", "format": "quantity"}  # the only other type that is text or number
    fact: JsonObject = {key: schema[key] for key in _KEPT if key in schema}
    if fact.get("default") in _NOTHING:
        del fact["default"]
    if "properties" in fact:
        fact["properties"] = {name: _fact(field, published) for name, field in fact["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in fact:
            fact[key] = _fact(fact[key], published)
    if fact.get("type", "object") == "object" and not fact.keys() & {"properties", "additionalProperties"}:
        fact[_ANYTHING] = True  # free JSON
    return fact


def _text(version: str, kinds: list[JsonObject], types: JsonObject) -> str:
    """JSON with a kind or a type on each line, so that differences between versions can be read."""

    def line(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"))

    listed = ",\n".join(line(kind) for kind in kinds)
    named = ",\n".join(f"{line(name)}:{line(types[name])}" for name in sorted(types))
    return f'{{"kubernetes":{line(version)},"kinds":[\n{listed}\n],"types":{{\n{named}\n}}}}\n'

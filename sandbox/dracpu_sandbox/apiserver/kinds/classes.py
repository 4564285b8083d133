"""The fields of built-in kinds, read from the classes of the installed Python client at first need.

The client is generated from the API's own description, so it knows every field with its type and its description. It is
imported late: it takes some tenths of a second, and only what asks for built-in fields needs it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.descriptions import DESCRIPTIONS
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind

_PLAIN: Final[Mapping[str, JsonObject]] = {
    "str": {"type": "string"},
    "int": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "double"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "object": {"x-kubernetes-preserve-unknown-fields": True},  # any JSON
}
# what the client has as texts, because it knows no quantities: class -> fields (of maps, their values)
_QUANTITIES: Final[Mapping[str, frozenset[str]]] = {
    "CapacityRequestPolicy": frozenset({"default", "validValues"}),
    "CapacityRequestPolicyRange": frozenset({"max", "min", "step"}),
    "CapacityRequirements": frozenset({"requests"}),
    "Counter": frozenset({"value"}),
    "DeviceCapacity": frozenset({"value"}),
    "DeviceRequestAllocationResult": frozenset({"consumedCapacity"}),
    "EmptyDirVolumeSource": frozenset({"sizeLimit"}),
    "NodeStatus": frozenset({"allocatable", "capacity"}),
    "PodSpec": frozenset({"overhead"}),
    "ResourceFieldSelector": frozenset({"divisor"}),
    "ResourceRequirements": frozenset({"limits", "requests"}),
}
_BYTES: Final[Mapping[str, frozenset[str]]] = {  # likewise: bytes, as base64
    "ConfigMap": frozenset({"binaryData"}),
    "Secret": frozenset({"data"}),
}
# fields that the client knows no type of
_SCHEMAS_IN_SCHEMAS: Final = frozenset({"additionalItems", "additionalProperties", "items"})
OR_BOOLEAN: Final = "x-or-boolean"  # in a schema: true, false or what this says
CLASS: Final = "x-class"  # in a schema: the name of its class
_CLASS_NAME: Final = re.compile(r"(?P<group>[A-Z][a-z]+)?(?P<version>V\d+(?:(?:alpha|beta)\d+)?)(?P<name>[A-Z].*)")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a class, under the name that it has in JSON."""

    name: str
    type: str  # as the client writes it: str, list[V1Container], dict(str, str)
    description: str
    required: bool


@cache
def fields_of(model: str) -> tuple[Field, ...]:
    """The fields of a class of the client."""
    from kubernetes_asyncio import client  # noqa: PLC0415  # see above

    cls = getattr(client, model)
    blank = object.__new__(cls)
    blank.local_vars_configuration = SimpleNamespace(client_side_validation=True)
    return tuple(
        Field(
            name=cls.attribute_map[attribute],
            type=kind,
            description=_paragraph(getattr(cls, attribute).__doc__),
            required=_refuses_none(blank, attribute),
        )
        for attribute, kind in cls.openapi_types.items()
    )


def schema(model: str) -> JsonObject:
    """The schema of a class, whole: one that refers to itself is a cycle of the very same objects."""
    if model not in _SCHEMAS:
        whole: JsonObject = {"type": "object", CLASS: class_name(model)}
        _SCHEMAS[model] = whole  # before its fields: they may lead back here
        whole["properties"] = {one.name: _of_type(one.type, model, one.name) for one in fields_of(model)}
    return _SCHEMAS[model]


_SCHEMAS: dict[str, JsonObject] = {}


def _of_type(text: str, model: str, name: str) -> JsonObject:
    if class_name(model) == "JSONSchemaProps" and text == "object" and name in _SCHEMAS_IN_SCHEMAS:
        return {OR_BOOLEAN: schema(model)} if name.startswith("additional") else schema(model)
    inner = item_type(text)
    if inner is None:
        if text == "str" and name in _QUANTITIES.get(class_name(model), ()):
            return {"type": "string", "format": "quantity"}
        if text == "str" and name in _BYTES.get(class_name(model), ()):
            return {"type": "string", "format": "byte"}
        return _PLAIN.get(text) or schema(text)
    values = _of_type(inner[1], model, name)
    return _holding(inner[0], values)


def _holding(holder: str, values: JsonObject) -> JsonObject:
    if holder == "list":
        return {"type": "array", "items": values}
    return {"type": "object", "additionalProperties": values}


def item_type(text: str) -> tuple[str, str] | None:
    """("list", X) of list[X], ("dict", X) of dict(str, X); None of a plain type."""
    if text.startswith("list["):
        return "list", text[5:-1]
    if text.startswith("dict(str, "):
        return "dict", text[10:-1]
    return None


def class_name(model: str) -> str:
    """The name of a class in Go, without the client's group and version in front of it."""
    match = _CLASS_NAME.fullmatch(model)
    return match["name"] if match else model


def components(kind: Kind) -> dict[str, JsonObject]:
    """The classes of a kind as OpenAPI v3 components that refer to each other."""
    found: dict[str, JsonObject] = {}
    _collect(kind.model, (), kind, found)
    return found


def component_name(model: str) -> str:
    """The name of a class in OpenAPI: io.k8s.v1.Pod."""
    match = _CLASS_NAME.fullmatch(model)
    if match is None:
        return f"io.k8s.{model}"
    group = f"{match['group'].lower()}." if match["group"] else ""
    return f"io.k8s.{group}{match['version'].lower()}.{match['name']}"


def _collect(model: str, path: tuple[str, ...], kind: Kind, found: dict[str, JsonObject]) -> None:
    name = component_name(model)
    if name in found:
        return
    properties: dict[str, JsonObject] = {}
    found[name] = {**_told(DESCRIPTIONS.get(class_name(model))), "type": "object", "properties": properties}
    required = [one.name for one in fields_of(model) if one.required]
    if required:
        found[name]["required"] = required
    for one in fields_of(model):
        here = (*path, one.name)
        told = _told(one.description or DESCRIPTIONS.get(class_name(one.type)))  # the client lacks those of objects
        properties[one.name] = {**told, **_referring(one.type), **_merging(kind, here, one.type)}
        leaf = one.type
        while (inner := item_type(leaf)) is not None:
            leaf = inner[1]
        if leaf not in _PLAIN:
            _collect(leaf, here, kind, found)


def _told(description: str | None) -> JsonObject:
    return {"description": description} if description else {}


def _referring(text: str) -> JsonObject:
    inner = item_type(text)
    if inner is not None:
        return _holding(inner[0], _referring(inner[1]))
    if text == "object":
        return {"type": "object"}
    if text in _PLAIN:
        return _PLAIN[text]
    # allOf lets a description stand beside the reference
    return {"allOf": [{"$ref": f"#/components/schemas/{component_name(text)}"}]}


def _merging(kind: Kind, path: tuple[str, ...], text: str) -> JsonObject:
    """How a list or an object merges, for server-side apply and for strategic patches."""
    if text.startswith("list["):
        listed = kind.list_type(path)
        merges: JsonObject = {"x-kubernetes-list-type": listed.kind}
        if listed.kind == "map":
            keys = list(listed.keys)
            merges |= {"x-kubernetes-list-map-keys": keys, "x-kubernetes-patch-merge-key": keys[0]}
        if listed.kind != "atomic":
            merges["x-kubernetes-patch-strategy"] = "merge"
        return merges
    return {"x-kubernetes-map-type": "atomic"} if path in kind.atomic_maps else {}


def _paragraph(docstring: str | None) -> str:
    """The second paragraph of a getter's docstring is the field's description."""
    paragraphs = [" ".join(part.replace("# noqa: E501", "").split()) for part in (docstring or "").split("\n\n")]
    told = [part for part in paragraphs[1:] if part and not part.startswith(":return")]
    return " ".join(told)


def _refuses_none(blank: Any, attribute: str) -> bool:
    try:
        setattr(blank, attribute, None)
    except ValueError:
        return True
    return False

"""Turns a pydantic model into the structural OpenAPI v3 schema that a CRD needs.

A structural schema has the type of every field in its place, without references or alternatives. Pydantic writes
titles, references and null alternatives of optional fields: these are resolved here, and everything else is kept.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic import BaseModel

Schema = dict[str, Any]

# the order of the keys in the result: the most important ones first
_ORDER: Final = (
    "description", "type", "x-kubernetes-int-or-string", "format", "enum", "default", "pattern", "minLength",
    "maxLength", "minimum", "maximum", "maxItems", "maxProperties", "required", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "properties", "items", "additionalProperties",
    "x-kubernetes-validations",
)  # fmt: skip


class SchemaError(Exception):
    """A model that cannot be expressed as a structural schema."""


def structural(model: type[BaseModel], defaults: Collection[str] = ()) -> Schema:
    """The schema of a model, ready for `openAPIV3Schema`. Only the fields at the paths in `defaults` get the defaults
    of the model: the API server adds a default to objects that are stored already, without a new generation."""
    raw = model.model_json_schema(by_alias=True)
    return _resolve(raw, raw.pop("$defs", {}), "", defaults)


def _resolve(
    node: Mapping[str, Any], definitions: Mapping[str, Schema], path: str, defaults: Collection[str]
) -> Schema:
    merged = _expand(dict(node), definitions)
    merged.pop("title", None)
    if merged.get("additionalProperties") is False:  # structural: the API server prunes unknown fields by itself
        del merged["additionalProperties"]
    if "const" in merged:
        merged["enum"] = [merged.pop("const")]
    if path.removeprefix(".") not in defaults:
        merged.pop("default", None)
    _tidy_default(merged)
    if "description" in merged:
        merged["description"] = " ".join(merged["description"].split())
    if "properties" in merged:
        merged["properties"] = {
            name: _resolve(child, definitions, f"{path}.{name}", defaults)
            for name, child in merged["properties"].items()
        }
    for nested in ("items", "additionalProperties"):
        if isinstance(merged.get(nested), Mapping):
            merged[nested] = _resolve(merged[nested], definitions, f"{path}[]", defaults)
    return _ordered(merged)


def _expand(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Replaces a reference by its definition; keys beside the reference take precedence."""
    if "anyOf" in node:
        choices = [choice for choice in node.pop("anyOf") if choice != {"type": "null"}]
        if len(choices) != 1:
            raise SchemaError(f"a structural schema has no alternatives: {choices}")
        node = {**choices[0], **node}
    if "$ref" in node:
        name = node.pop("$ref").rpartition("/")[2]
        return _expand({**definitions[name], **node}, definitions)
    return node


def _tidy_default(node: Schema) -> None:
    """Makes {} the default of nested objects, which the defaults of their own fields complete. Optional lists and
    values get no default."""
    if "default" not in node:
        return
    if isinstance(node["default"], Mapping):
        node["default"] = {}
    elif node["default"] is None or isinstance(node["default"], list):
        del node["default"]


def _ordered(node: Schema) -> Schema:
    unknown = node.keys() - set(_ORDER)
    if unknown:
        raise SchemaError(f"it is not known whether a CRD may have {sorted(unknown)}: {node}")
    return {key: node[key] for key in _ORDER if key in node}

"""From a pydantic model to the structural OpenAPI v3 schema that a CRD needs.

Structural means: every type is said where it stands, no references, no alternatives. What pydantic writes for itself
(titles, references, null alternatives of optional fields) is resolved here; everything else it writes is kept.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

Schema = dict[str, Any]

# What a reader looks for first stands first; the rest follows in this order.
_ORDER: Final = (
    "description", "type", "x-kubernetes-int-or-string", "format", "enum", "default", "pattern", "minLength",
    "maxLength", "minimum", "maximum", "maxItems", "maxProperties", "required", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "properties", "items", "additionalProperties",
    "x-kubernetes-validations",
)  # fmt: skip


class SchemaError(Exception):
    """A model that says something that no structural schema can say."""


def structural(model: type[BaseModel]) -> Schema:
    """The schema of a model, ready for `openAPIV3Schema`."""
    raw = model.model_json_schema(by_alias=True)
    return _resolve(raw, raw.pop("$defs", {}))


def _resolve(node: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    merged = _expand(dict(node), definitions)
    merged.pop("title", None)
    if merged.get("additionalProperties") is False:  # structural: the API server prunes unknown fields by itself
        del merged["additionalProperties"]
    if "const" in merged:
        merged["enum"] = [merged.pop("const")]
    _tidy_default(merged)
    if "description" in merged:
        merged["description"] = " ".join(merged["description"].split())
    if "properties" in merged:
        merged["properties"] = {name: _resolve(child, definitions) for name, child in merged["properties"].items()}
    for nested in ("items", "additionalProperties"):
        if isinstance(merged.get(nested), Mapping):
            merged[nested] = _resolve(merged[nested], definitions)
    return _ordered(merged)


def _expand(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Puts what is referred to in place of the reference; what stands beside the reference wins."""
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
    """Nested objects default to {}: their own fields' defaults fill it. Absent lists and values stay absent."""
    if "default" not in node:
        return
    if isinstance(node["default"], Mapping):
        node["default"] = {}
    elif node["default"] is None or isinstance(node["default"], list):
        del node["default"]


def _ordered(node: Schema) -> Schema:
    unknown = node.keys() - set(_ORDER)
    if unknown:
        raise SchemaError(f"not checked whether a CRD may say {sorted(unknown)}: {node}")
    return {key: node[key] for key in _ORDER if key in node}

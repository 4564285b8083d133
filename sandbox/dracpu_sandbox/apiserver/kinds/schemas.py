"""The built-in kinds and the types of their fields, as a kube-apiserver publishes them.

`make record` writes builtin.json. Its types are schemas in the form that CustomResourceDefinitions have, so that the
objects of all kinds are checked in the same way.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

Schema = Mapping[str, Any]

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
METADATA_TYPE: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
REFERENCE: Final = "#/components/schemas/"

_RECORDED: Final = json.loads(Path(__file__).with_name("builtin.json").read_text())
KUBERNETES: Final[str] = _RECORDED["kubernetes"]  # the version, like v1.37.1
KINDS: Final[list[dict[str, Any]]] = _RECORDED["kinds"]
TYPES: Final[Mapping[str, Schema]] = _RECORDED["types"]  # types refer to each other by name

_resolved: dict[str, dict[str, Any]] = {}


def schema_of(name: str) -> Schema:
    """Returns a type with its references resolved; a type that contains itself becomes a cyclic object."""
    if name not in _resolved:
        _resolved[name] = {}  # before its fields, which may lead back here
        _resolved[name].update(_resolve(TYPES[name]))
    return _resolved[name]


def _resolve(schema: Schema) -> Schema:
    if "$ref" in schema:
        return schema_of(schema["$ref"].removeprefix(REFERENCE))
    parts = {key: _resolve(schema[key]) for key in ("items", "additionalProperties") if key in schema}
    if "properties" in schema:
        parts["properties"] = {name: _resolve(field) for name, field in schema["properties"].items()}
    return {**schema, **parts}

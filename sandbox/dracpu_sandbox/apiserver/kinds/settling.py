"""What becomes of a body before it is judged: unknown fields go, nulls go, defaults come.

All functions walk a schema and a value side by side and change neither.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
OBJECT_FIELDS: Final = ("apiVersion", "kind", "metadata")  # of every object, whatever its schema says
_METADATA_FIELDS: Final = frozenset(
    {
        "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
        "generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences",
        "resourceVersion", "selfLink", "uid",
    }
)  # fmt: skip
_DROPPED: Final = object()


def settle(schema: Schema, body: Mapping[str, Any]) -> dict[str, Any]:
    """The object with what its schema says of unknown fields, nulls and defaults."""
    settled = _settle_object(schema, body, is_object=True)
    metadata = settled.get("metadata")
    if isinstance(metadata, dict):
        settled["metadata"] = {key: value for key, value in metadata.items() if key in _METADATA_FIELDS}
    return settled


def _settle(schema: Schema, value: Any) -> Any:
    if isinstance(value, dict):
        if schema.get("type", "object") != "object":
            return value  # the check will say so
        return _settle_object(schema, value, is_object=bool(schema.get(EMBEDDED)))
    if isinstance(value, list):
        items = schema.get("items")
        return value if items is None else [_settle(items, one) for one in value]
    return value


def _settle_object(schema: Schema, value: Mapping[str, Any], *, is_object: bool) -> dict[str, Any]:
    fields: Mapping[str, Schema] = schema.get("properties", {})
    settled = {}
    for name, item in value.items():
        inside = _schema_of(schema, fields, name, is_object=is_object)
        if inside is _DROPPED or (item is None and inside is not None and not inside.get("nullable")):
            continue
        settled[name] = item if inside is None else _settle(inside, item)
    if is_object and EMBEDDED in schema and isinstance(settled.get("metadata"), dict):
        settled["metadata"] = {key: one for key, one in settled["metadata"].items() if key in _METADATA_FIELDS}
    for name, inside in fields.items():
        if name not in settled and "default" in inside:
            settled[name] = _settle(inside, copy.deepcopy(inside["default"]))
    return settled


def _schema_of(schema: Schema, fields: Mapping[str, Schema], name: str, *, is_object: bool) -> Any:
    """The schema of a field; None when anything may stand there, _DROPPED when there is no such field."""
    if is_object and name in OBJECT_FIELDS:
        return None
    if name in fields:
        return fields[name]
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        return others
    return None if others is True or schema.get(PRESERVE) else _DROPPED


def unknown(schema: Schema, body: Mapping[str, Any]) -> Iterator[str]:
    """The paths of the fields that `settle` drops because there are no such fields."""
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        yield from (f"metadata.{name}" for name in metadata if name not in _METADATA_FIELDS)
    yield from _unknown(schema, body, "", is_object=True)


def _unknown(schema: Schema, value: Any, path: str, *, is_object: bool = False) -> Iterator[str]:
    if isinstance(value, dict) and schema.get("type", "object") == "object":
        fields: Mapping[str, Schema] = schema.get("properties", {})
        for name, item in value.items():
            here = f"{path}.{name}" if path else name
            inside = _schema_of(schema, fields, name, is_object=is_object or bool(schema.get(EMBEDDED)))
            if inside is _DROPPED:
                yield here
            elif inside is not None:
                yield from _unknown(inside, item, here)
    elif isinstance(value, list) and "items" in schema:
        for number, one in enumerate(value):
            yield from _unknown(schema["items"], one, f"{path}[{number}]")

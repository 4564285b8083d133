"""Normalizes objects before they are checked: drops unknown fields and nulls, and fills in defaults."""

import copy
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.schemas import PRESERVE, Schema
from dracpu_sandbox.cel.quantity import Quantity, QuantityError

_NO_FIELD: Final[Schema] = {}
_ANYTHING: Final[Schema] = {PRESERVE: True}


def normalize(schema: Schema, value: Any, path: str = "", unknown: list[str] | None = None) -> Any:
    """Returns the value with its defaults, and without unknown fields and nulls; does not change the value.

    The paths of unknown fields are appended to `unknown`.
    """
    if isinstance(value, dict) and schema.get("type", "object") == "object":
        return _object(schema, value, path, [] if unknown is None else unknown)
    if isinstance(value, list) and "items" in schema:
        items = schema["items"]
        return [normalize(items, item, f"{path}[{number}]", unknown) for number, item in enumerate(value)]
    if schema.get("format") == "quantity":
        return _quantity(value)
    return value


def _object(schema: Schema, value: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    fields: dict[str, Schema] = schema.get("properties", {})
    others: Schema = schema.get("additionalProperties", _ANYTHING if schema.get(PRESERVE) else _NO_FIELD)
    normalized = {}
    for name, item in value.items():
        here = f"{path}.{name}" if path else name
        inside = fields.get(name, others)
        if inside is _NO_FIELD:
            unknown.append(here)
        elif item is not None or inside.get("nullable") or PRESERVE in inside:
            normalized[name] = normalize(inside, item, here, unknown)
    for name, field in fields.items():
        if name not in normalized and "default" in field:
            normalized[name] = normalize(field, copy.deepcopy(field["default"]))
    return normalized


def _quantity(value: Any) -> Any:
    """Returns the text of a quantity that the API server stores."""
    if type(value) not in {str, int, float}:
        return value
    try:
        return Quantity.stored(value)
    except QuantityError:
        return value  # the check reports it

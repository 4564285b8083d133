"""Checks values against their schemas."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.schemas import INT_OR_STRING, Schema
from dracpu_sandbox.cel.quantity import Quantity, QuantityError

_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_DATE_TIME: Final = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(\.\d+)?(Z|[+-]\d{2}:\d{2})")
_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
    type(None): "null",
}


def check(schema: Schema, value: Any, path: str = "", unchanged: Collection[str] = ()) -> Iterator[Problem]:
    """Yields the problems of a value; does not check the contents of its `unchanged` fields."""
    if value is None and schema.get("nullable"):
        return
    expected, found = _expected(schema), _TYPES[type(value)]
    if expected and found not in expected:
        yield problems.type_invalid(path, found, f'{path} in body must be of type {",".join(expected)}: "{found}"')
        return
    if "enum" in schema and value not in schema["enum"]:
        yield problems.unsupported(path, value, schema["enum"])
    if isinstance(value, dict):
        yield from _object(schema, value, path, unchanged)
    elif isinstance(value, list):
        yield from _array(schema, value, path)
    elif isinstance(value, str):
        yield from _string(schema, value, path)
    elif not isinstance(value, bool) and value is not None:
        yield from _number(schema, value, path)


def _expected(schema: Schema) -> tuple[str, ...]:
    if schema.get(INT_OR_STRING):
        return "integer", "string"
    if schema.get("format") == "quantity":
        return "string", "integer", "number"
    match schema.get("type"):
        case None:
            return ()
        case "number":
            return "number", "integer"
        case plain:
            return (plain,)


def _object(schema: Schema, value: dict[str, Any], path: str, unchanged: Collection[str]) -> Iterator[Problem]:
    for name in schema.get("required", ()):
        if name not in value:
            yield problems.required(joined(path, name))
    yield from _size(schema, len(value), path, "minProperties", "maxProperties")
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, item in value.items():
        inside = fields.get(name, others)
        if inside is not None and name not in unchanged:
            yield from check(inside, item, joined(path, name))


def _array(schema: Schema, value: list[Any], path: str) -> Iterator[Problem]:
    yield from _size(schema, len(value), path, "minItems", "maxItems")
    match schema.get("x-kubernetes-list-type"):
        case "set":
            yield from duplicates(path, value)
        case "map":
            yield from duplicates(path, [_keys(schema, item) for item in value])
    if "items" in schema:
        for number, item in enumerate(value):
            yield from check(schema["items"], item, f"{path}[{number}]")


def _keys(schema: Schema, item: Any) -> Any:
    """Returns the keys of an item of a list that is merged as a map."""
    if not isinstance(item, dict):
        return item
    fields = schema["items"].get("properties", {})
    values = {key: item.get(key, fields.get(key, {}).get("default")) for key in schema["x-kubernetes-list-map-keys"]}
    return {key: value for key, value in values.items() if value is not None}


def duplicates(path: str, keys: list[Any]) -> Iterator[Problem]:
    """Yields a problem for each item of a list whose key an earlier item has."""
    seen: set[str] = set()
    for number, key in enumerate(keys):
        text = json.dumps(key, sort_keys=True)
        if text in seen:
            yield problems.duplicate(f"{path}[{number}]", key)
        seen.add(text)


def _size(schema: Schema, size: int, path: str, least: str, most: str) -> Iterator[Problem]:
    if size > schema.get(most, size):
        yield problems.too_many(path, size, schema[most])
    if size < schema.get(least, size):
        yield problems.invalid(path, size, f"must have at least {schema[least]} items")


def _string(schema: Schema, value: str, path: str) -> Iterator[Problem]:
    if len(value) > schema.get("maxLength", len(value)):
        yield problems.too_long(path, schema["maxLength"])
    if len(value) < schema.get("minLength", 0):
        yield problems.invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if "pattern" in schema and not go_pattern(schema["pattern"]).search(value):
        yield problems.invalid(path, value, f"{path} in body should match '{schema['pattern']}'")
    is_formatted = _FORMATS.get(schema.get("format", ""))
    if is_formatted is not None and not is_formatted(value):
        yield problems.type_invalid(path, value, f'{path} in body must be of type {schema["format"]}: "{value}"')


def _is_date_time(text: str) -> bool:
    found = _DATE_TIME.fullmatch(text)
    return found is not None and _parses(datetime.fromisoformat, found[1])


def _is_base64(text: str) -> bool:
    return _parses(lambda line: base64.b64decode(line, validate=True), text.replace("\n", "").replace("\r", ""))


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, binascii.Error, QuantityError):
        return False
    return True


_FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "byte": _is_base64,
    "date-time": _is_date_time,
    "quantity": lambda text: _parses(Quantity.parse, text),
}
FORMATS: Final = frozenset({*_FORMATS, *_RANGES, "double"})  # the formats that schemas may name


@lru_cache(maxsize=1024)
def go_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern as Go does: `$` is the end of the text, while Python's `$` also precedes a final newline."""
    return re.compile(_DOLLAR.sub(lambda found: r"\Z" if found[0] == "$" else found[0], pattern))


_DOLLAR: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)  # or an escape or a class, whose dollars stay


def _number(schema: Schema, value: float, path: str) -> Iterator[Problem]:
    low, high = _RANGES.get(schema.get("format", ""), (value, value))
    if not low <= value <= high:
        yield problems.invalid(path, value, f"must be of format {schema['format']}")
    if value < schema.get("minimum", value):
        yield problems.invalid(path, value, f"{path} in body should be greater than or equal to {schema['minimum']}")
    if value > schema.get("maximum", value):
        yield problems.invalid(path, value, f"{path} in body should be less than or equal to {schema['maximum']}")


def joined(path: str, name: str) -> str:
    """Returns the path of a field of the object at `path`."""
    return f"{path}.{name}" if path else name

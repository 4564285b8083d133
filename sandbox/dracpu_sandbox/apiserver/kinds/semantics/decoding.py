"""A body becomes a built-in object: wrong types are refused, unknown fields and nulls are dropped."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import ages
from dracpu_sandbox.apiserver.kinds.classes import CLASS, OR_BOOLEAN, class_name, schema
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.settling import PRESERVE
from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.cel.quantity import Quantity, QuantityError

Schema = Mapping[str, Any]

_BAD_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_BASE64: Final = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_GO_TYPES: Final = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}
_JSON_WORDS: Final[Mapping[type, str]] = {
    bool: "bool",
    dict: "object",
    float: "number",
    int: "number",
    list: "array",
    str: "string",
}


class _DecodingError(Exception):
    """The body cannot become an object of its kind."""


def decode(kind: Kind, body: JsonObject) -> JsonObject:
    """The object; raises RefusedError (400)."""
    try:
        decoded: JsonObject = _decode(schema(kind.model), body, class_name(kind.model), "")
    except _DecodingError as error:
        text = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
        raise RefusedError(400, "BadRequest", text) from error
    return decoded


def _decode(wanted: Schema, value: Any, owner: str, path: str) -> Any:
    if OR_BOOLEAN in wanted:
        return value if isinstance(value, bool) else _decode(wanted[OR_BOOLEAN], value, owner, path)
    expected = wanted.get("type")
    if expected is None:
        return value
    if expected == "string" and wanted.get("format") == "quantity":
        return _quantity(value)
    if type(value) not in _PYTHON[expected]:
        raise _DecodingError(
            f"json: cannot unmarshal {_JSON_WORDS[type(value)]} into Go struct field {owner}.{path} "
            f"of type {_go_type(wanted)}"
        )
    if expected == "object":
        return _object(wanted, value, owner, path)
    if expected == "array":
        items = wanted["items"]
        return [_decode(items, _zero(items) if one is None else one, owner, path) for one in value]
    if wanted.get("format") == "byte":
        _check_base64(value)
    if wanted.get("format") == "date-time" and ages.parse_time(value) is None:
        raise _DecodingError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}"')
    return value


_PYTHON: Final[Mapping[str, tuple[type, ...]]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def _zero(wanted: Schema) -> Any:
    """What Go makes of a null in a list."""
    expected = wanted.get("type")
    return None if expected is None else _PYTHON[expected][0]()


def _object(wanted: Schema, value: JsonObject, owner: str, path: str) -> JsonObject:
    if "additionalProperties" in wanted:
        values = wanted["additionalProperties"]
        return {name: _decode(values, one, owner, path) for name, one in value.items() if one is not None}
    fields, own = wanted["properties"], wanted.get(CLASS) or owner
    return {
        name: _decode(fields[name], one, own, f"{path}.{name}" if path else name)
        for name, one in value.items()
        if name in fields and one is not None
    }


def _go_type(wanted: Schema) -> str:
    match wanted["type"]:
        case "array":
            return f"[]{_go_type(wanted['items'])}"
        case "object" if "additionalProperties" in wanted:
            return f"map[string]{_go_type(wanted['additionalProperties'])}"
        case "object":
            return f"v1.{wanted[CLASS]}"
        case plain:
            return _GO_TYPES[plain]


def _quantity(value: Any) -> str:
    if isinstance(value, str) and value.isdecimal():
        return value  # plain digits are kept as they are, zeros in front of them, too
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _DecodingError(_BAD_QUANTITY)
    try:
        return Quantity.parse(value).text
    except QuantityError as error:
        raise _DecodingError(_BAD_QUANTITY) from error


def _check_base64(value: str) -> None:
    bare = value.replace("\n", "").replace("\r", "")
    good = _BASE64.match(bare)
    end = good.end() if good else 0
    if end < len(bare):
        raise _DecodingError(f"illegal base64 data at input byte {end}")


def unknown(kind: Kind, body: JsonObject) -> Iterator[str]:
    """The paths of the fields that a built-in kind has not."""
    yield from _unknown(schema(kind.model), body, "")


def _unknown(wanted: Schema, value: Any, path: str) -> Iterator[str]:
    wanted = wanted.get(OR_BOOLEAN, wanted)
    if wanted.get(PRESERVE):
        return
    if isinstance(value, list) and "items" in wanted:
        for number, one in enumerate(value):
            yield from _unknown(wanted["items"], one, f"{path}[{number}]")
    elif isinstance(value, dict):
        fields, others = wanted.get("properties", {}), wanted.get("additionalProperties")
        for name, one in value.items():
            here = f"{path}.{name}" if path else name
            inside = fields.get(name, others)
            if inside is None:
                yield here
            else:
                yield from _unknown(inside, one, here)

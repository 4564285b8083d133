"""Whether a custom resource is what its schema says, in the API server's words.

On an update a part that has not changed is not judged again (ratcheting), so that an object that a schema has become
too narrow for can still be changed elsewhere.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.correlation import MISSING, children, hashable, joined, keys_of, same
from dracpu_sandbox.apiserver.kinds.formats import is_formatted
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.settling import EMBEDDED, INT_OR_STRING

Schema = Mapping[str, Any]
_Check = Callable[[Schema, Any, str], Iterator[Problem]]

NOWHERE: Final = "<nil>"  # the API server's word for an error that belongs to no field


def check(schema: Schema, value: Any, old: Any = MISSING, path: str = "") -> Iterator[Problem]:
    """Everything that is wrong with a value; `old` is what stands in its place in the stored object."""
    if old is not MISSING and same(value, old):
        return
    if value is None and schema.get("nullable"):
        return
    expected = _expected_types(schema)
    found = type_of(value)
    is_right = found in expected or (found == "integer" and "number" in expected)  # a whole number is a number, too
    if expected and not is_right:
        yield problems.type_invalid(path, found, f'{path} in body must be of type {",".join(expected)}: "{found}"')
        if "enum" in schema:
            yield from _enum(schema, value, path)
        return
    yield from _alone(schema, value, path)
    for inside, item, before, here in children(schema, value, old, path):
        yield from check(inside, item, before, here)


def type_of(value: Any) -> str:
    """The name of a value's type in JSON schemas."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _TYPES[type(value)]


_TYPES: Final[Mapping[type, str]] = {
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
    type(None): "null",
}


def _expected_types(schema: Schema) -> tuple[str, ...]:
    if schema.get(INT_OR_STRING):
        return "integer", "string"
    return (schema["type"],) if "type" in schema else ()


def _alone(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    """What is wrong with the value itself, not with what is inside of it."""
    if "enum" in schema:
        yield from _enum(schema, value, path)
    own = _BY_TYPE.get(type_of(value))
    if own is not None:
        yield from own(schema, value, path)
    if schema.keys() & _COMBINING:
        yield from _combined(schema, value, path)


def _enum(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    if not any(same(value, choice) for choice in schema["enum"]):
        yield problems.unsupported(path, value, schema["enum"])


def _object(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    needed = [*schema.get("required", ()), *(("apiVersion", "kind") if schema.get(EMBEDDED) else ())]
    for name in needed:
        if name not in value:
            yield problems.required(joined(path, name))
    yield from _size(schema, len(value), path, "minProperties", "maxProperties", "properties")


def _array(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    yield from _size(schema, len(value), path, "minItems", "maxItems", "items")
    match schema.get("x-kubernetes-list-type"):
        case "set":
            seen: set[str] = set()
            for number, item in enumerate(value):
                if hashable(item) in seen:
                    yield problems.duplicate(f"{path}[{number}]", item)
                seen.add(hashable(item))
        case "map":
            yield from _map(schema, value, path)


def _map(schema: Schema, value: list[Any], path: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, item in enumerate(value):
        here, keys = f"{path}[{number}]", keys_of(schema, item)
        if keys is None:
            yield problems.invalid(here, item, "must be an object for an array of list-type map")
        elif hashable(keys) in seen:
            yield problems.duplicate(here, keys)
        else:
            seen.add(hashable(keys))


def _size(schema: Schema, size: int, path: str, least: str, most: str, what: str) -> Iterator[Problem]:
    if size > schema.get(most, size):
        yield problems.too_many(path, size, schema[most])
    if size < schema.get(least, size):
        yield problems.invalid(path, size, f"{path} in body should have at least {schema[least]} {what}")


def _string(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    if len(value) > schema.get("maxLength", len(value)):
        yield problems.too_long(path, schema["maxLength"])
    if len(value) < schema.get("minLength", 0):
        yield problems.invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if "pattern" in schema and not go_pattern(schema["pattern"]).search(value):
        yield problems.invalid(path, value, f"{path} in body should match '{schema['pattern']}'")
    if "format" in schema and not is_formatted(schema["format"], value):
        yield problems.type_invalid(path, value, f'{path} in body must be of type {schema["format"]}: "{value}"')


@lru_cache(maxsize=1024)
def go_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern as Go means it: there `$` is the end, here it would also match before a last newline."""
    return re.compile(_DOLLAR.sub(lambda found: r"\Z" if found[0] == "$" else found[0], pattern))


_DOLLAR: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)  # not those that are escaped, or in a class


def _number(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    shape = schema.get("format", "")
    if shape in {"int32", "int64"} and not is_formatted(shape, value):
        detail = f"Checked value must be of type {schema.get('type', 'integer')} with format {shape} in {path}"
        yield problems.invalid(NOWHERE, "", detail)
    for bound, exclusive, broken, words in _BOUNDS:
        if bound not in schema:
            continue
        strictly = bool(schema.get(exclusive))
        if broken(value, schema[bound]) or (strictly and value == schema[bound]):
            relation = words if strictly else f"{words} or equal to"
            yield problems.invalid(path, value, f"{path} in body should be {relation} {schema[bound]}")
    if "multipleOf" in schema and value % schema["multipleOf"]:
        yield problems.invalid(path, value, f"{path} in body should be a multiple of {schema['multipleOf']}")


def _less(value: float, bound: float) -> bool:
    return value < bound


def _more(value: float, bound: float) -> bool:
    return value > bound


_BOUNDS: Final = (
    ("minimum", "exclusiveMinimum", _less, "greater than"),
    ("maximum", "exclusiveMaximum", _more, "less than"),
)
_BY_TYPE: Final[Mapping[str, _Check]] = {
    "array": _array,
    "integer": _number,
    "number": _number,
    "object": _object,
    "string": _string,
}
_COMBINING: Final = frozenset({"allOf", "anyOf", "not", "oneOf"})


def _combined(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    def failures(parts: Any) -> list[list[Problem]]:
        return [list(check(part, value, MISSING, path)) for part in parts]

    def whole(detail: str) -> Problem:
        return problems.invalid(NOWHERE, "", f'"{path}" must {detail}')

    tried = failures(schema.get("anyOf", ()))
    if tried and all(tried):
        yield whole("validate at least one schema (anyOf)")
        yield from tried[0]
    tried = failures(schema.get("oneOf", ()))
    passed = tried.count([])
    if tried and passed == 0:
        yield whole("validate one and only one schema (oneOf). Found none valid")
        yield from tried[0]
    elif passed > 1:
        yield whole(f"validate one and only one schema (oneOf). Found {passed} valid alternatives")
    tried = failures(schema.get("allOf", ()))
    if any(tried):
        for one in tried:
            yield from one
        none = ". None validated" if all(tried) else ""
        yield whole(f"validate all the schemas (allOf){none}")
    if "not" in schema and not any(failures([schema["not"]])):
        yield whole("not validate the schema (not)")

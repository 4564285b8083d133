"""Which part of the stored object corresponds to a part of the new one."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Schema = Mapping[str, Any]


class _Missing:
    """There is no such part in the stored object, or it cannot be told which it is."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


def field_of(old: Any, name: str) -> Any:
    """A field of the old object."""
    return old.get(name, MISSING) if isinstance(old, dict) else MISSING


def items_of(schema: Schema, value: Sequence[Any], old: Any) -> list[Any]:
    """For each item of a list the one of the old list that has its keys; lists that are no maps have none."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return [MISSING] * len(value)
    known = {hashable(keys_of(schema, one)): one for one in old}
    return [known.get(hashable(keys_of(schema, one)), MISSING) for one in value]


def hashable(value: Any) -> str:
    """The same text for the same JSON, whatever the order of its fields."""
    return json.dumps(value, sort_keys=True)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: to Python true is 1, too."""
    return bool(one == other) and _same_types(one, other)


def _same_types(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_same_types(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return all(map(_same_types, one, other))
    return type(one) is type(other)


def keys_of(schema: Schema, item: Any) -> dict[str, Any] | None:
    """What tells an item of a list that is a map from the others; None of what is no object."""
    if not isinstance(item, dict):
        return None
    fields = schema.get("items", {}).get("properties", {})
    names: Sequence[str] = schema.get("x-kubernetes-list-map-keys", ())
    found = {name: item.get(name, fields.get(name, {}).get("default")) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def children(schema: Schema, value: Any, old: Any, path: str) -> Iterator[tuple[Schema, Any, Any, str]]:
    """The parts of a value that have a schema: schema, part, the old part, path (map entries as .key)."""
    if isinstance(value, dict):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            inside = fields.get(name, others)
            if isinstance(inside, Mapping):
                yield inside, item, field_of(old, name), joined(path, name)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for number, (item, before) in enumerate(zip(value, items_of(schema, value, old), strict=True)):
            yield schema["items"], item, before, f"{path}[{number}]"


def joined(path: str, name: str) -> str:
    """A field's path below another."""
    return f"{path}.{name}" if path else name

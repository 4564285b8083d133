"""Reads from a schema how lists and maps are merged."""

from collections.abc import Iterator
from typing import Final

from dracpu_sandbox.apiserver.kinds.kind import ListType, Path
from dracpu_sandbox.apiserver.kinds.schemas import Schema

_SET: Final = ListType("set")


def merging_of(schema: Schema) -> tuple[dict[Path, ListType], frozenset[Path]]:
    """Returns the types of the lists that are not atomic, and the paths of the objects that are atomic."""
    parts = list(_parts(schema, (), ()))
    lists = {path: _list_type(part) for path, part in parts if part.get("x-kubernetes-list-type") in {"set", "map"}}
    return lists, frozenset(path for path, part in parts if part.get("x-kubernetes-map-type") == "atomic")


def _parts(schema: Schema, path: Path, outer: tuple[int, ...]) -> Iterator[tuple[Path, Schema]]:
    if id(schema) in outer:
        return  # a type that contains itself
    yield path, schema
    around = (*outer, id(schema))
    for name, field in schema.get("properties", {}).items():
        yield from _parts(field, (*path, name), around)
    if "items" in schema:
        yield from _parts(schema["items"], path, around)


def _list_type(schema: Schema) -> ListType:
    if schema["x-kubernetes-list-type"] == "set":
        return _SET
    keys = tuple(schema["x-kubernetes-list-map-keys"])
    fields = schema["items"].get("properties", {})
    return ListType("map", keys, {key: fields[key]["default"] for key in keys if "default" in fields.get(key, {})})

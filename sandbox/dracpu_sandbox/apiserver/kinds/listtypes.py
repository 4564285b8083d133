"""How the lists and maps of custom resources merge, read from their schemas."""

from collections.abc import Mapping
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.model import ListType

Path = tuple[str, ...]

SET: Final = ListType("set")
METADATA_LISTS: Final[Mapping[Path, ListType]] = {
    ("metadata", "finalizers"): SET,
    ("metadata", "ownerReferences"): ListType("map", ("uid",)),
}
METADATA_ATOMS: Final[frozenset[Path]] = frozenset({("metadata", "ownerReferences")})  # each reference is one value


def lists_of(schema: Mapping[str, Any]) -> tuple[dict[Path, ListType], frozenset[Path]]:
    """The types of the lists of a schema that are not atomic, and the objects that are."""
    lists: dict[Path, ListType] = {}
    atoms: set[Path] = set()
    _collect(schema, (), lists, atoms)
    return lists, frozenset(atoms)


def _collect(schema: Mapping[str, Any], path: Path, lists: dict[Path, ListType], atoms: set[Path]) -> None:
    kind = schema.get("x-kubernetes-list-type")
    items = schema.get("items") or {}
    if kind == "set":
        lists[path] = SET
    elif kind == "map":
        keys = tuple(schema["x-kubernetes-list-map-keys"])
        fields = items.get("properties") or {}
        defaults = {key: fields[key]["default"] for key in keys if "default" in fields.get(key, {})}
        lists[path] = ListType("map", keys, defaults)
    if schema.get("x-kubernetes-map-type") == "atomic":
        atoms.add(path)
    for name, inside in (schema.get("properties") or {}).items():
        _collect(inside, (*path, name), lists, atoms)
    if items:
        _collect(items, path, lists, atoms)

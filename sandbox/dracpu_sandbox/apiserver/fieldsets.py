"""Sets of fields of an object: the fields that a field manager owns, or that a write has changed.

A field is a path of elements, written as in `managedFields`: `f:spec` is a field of that name, `k:{"name":"a"}` an
item of a list that is merged by keys, `v:"x"` an item of a list that is a set. Any other list is one value.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.kind import Kind, ListType

FieldPath = tuple[str, ...]
FieldSet = frozenset[FieldPath]
Names = tuple[str, ...]  # the field names of a path; items of lists add none

NO_FIELDS: Final[FieldSet] = frozenset()
ABSENT: Final = object()
_PARTS: Final = object()


@dataclass(frozen=True, slots=True)
class Shape:
    """Distinguishes the parts of an object that are merged from those that are replaced as one value."""

    list_type: Callable[[Names], ListType]
    atomic_maps: frozenset[Names] = frozenset()
    status_apart: bool = False  # the status is written through a subresource only

    def divides(self, value: Any, names: Names) -> bool:
        """Returns whether a value consists of several fields."""
        if isinstance(value, dict):
            return names not in self.atomic_maps
        return isinstance(value, list) and self.list_type(names).kind != "atomic"


def shape_of(kind: Kind) -> Shape:
    """Returns the shape of a kind's objects."""
    return Shape(kind.list_type, kind.atomic_maps, "status" in kind.subresources)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of two objects. A new list or mapping counts as a field, and each of its parts as well."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet


def parts(value: Any, names: Names, shape: Shape) -> Iterator[tuple[str, Names, Any]]:
    """Yields the parts of a value that consists of several fields: element, names, value."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield f"f:{name}", (*names, name), child
    elif isinstance(value, list):
        list_type = shape.list_type(names)
        for item in value:
            yield item_element(item, list_type), names, item


def item_element(item: Any, list_type: ListType) -> str:
    """Returns the element of an item of a list that is merged by keys, or is a set."""
    if list_type.kind == "map" and isinstance(item, dict):
        present = {**list_type.defaults, **item}
        return "k:" + _canonical({key: present[key] for key in list_type.keys if key in present})
    return "v:" + _canonical(item)


def field_set(value: Any, shape: Shape) -> FieldSet:
    """Returns all fields of an object: the values that have no parts, and the items of lists."""
    flat = _flat(value, shape)
    return frozenset(path for path, leaf in flat.items() if path and (leaf is not _PARTS or path[-1][0] != "f"))


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    """Compares `new` with `old`."""
    before, after = _flat(old, shape), _flat(new, shape)
    modified = (
        path
        for path in before.keys() & after.keys()
        if before[path] is not _PARTS and after[path] is not _PARTS and before[path] != after[path]
    )
    return Comparison(
        frozenset(after.keys() - before.keys()), frozenset(modified), frozenset(before.keys() - after.keys())
    )


def _flat(value: Any, shape: Shape) -> dict[FieldPath, Any]:
    """Maps the path of each value in an object to the value, or to a mark when the value has parts."""
    found: dict[FieldPath, Any] = {}
    _flatten(value, (), (), shape, found)
    return found


def _flatten(value: Any, names: Names, path: FieldPath, shape: Shape, found: dict[FieldPath, Any]) -> None:
    if value == {} or not shape.divides(value, names):
        found[path] = value
        return
    found[path] = _PARTS
    for element, inner, child in parts(value, names, shape):
        _flatten(child, inner, (*path, element), shape, found)


def without_fields(value: Any, removed: FieldSet, shape: Shape, names: Names = (), path: FieldPath = ()) -> Any:
    """Returns the object without some of its fields and their parts."""
    if not removed or not shape.divides(value, names):
        return value
    kept = [
        without_fields(child, removed, shape, inner, (*path, element))
        for element, inner, child in parts(value, names, shape)
        if (*path, element) not in removed
    ]
    if isinstance(value, list):
        return kept
    left = (name for name in value if (*path, f"f:{name}") not in removed)
    return dict(zip(left, kept, strict=True))


def with_parents(fields: Iterable[FieldPath]) -> FieldSet:
    """Adds the fields that contain these, except items of lists: the owner of an item's part does not own the item."""
    closed = set(fields)
    for path in tuple(closed):
        closed.update(path[:end] for end in range(1, len(path)) if path[end - 1][0] == "f")
    return frozenset(closed)


def encode_fields(fields: FieldSet) -> dict[str, Any]:
    """Encodes as `fieldsV1`; "." marks a field that contains other fields of the set."""
    root: dict[str, Any] = {}
    ends = []
    for path in sorted(fields):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        ends.append(node)
    for node in ends:
        if node:
            node["."] = {}
    return root


def decode_fields(encoded: Mapping[str, Any]) -> FieldSet:
    """Decodes `fieldsV1`."""
    found: set[FieldPath] = set()
    _decode(encoded, (), found)
    return frozenset(found)


def _decode(node: Mapping[str, Any], path: FieldPath, found: set[FieldPath]) -> None:
    if path and (not node or "." in node):
        found.add(path)
    for element, child in node.items():
        if element != ".":
            _decode(child, (*path, element), found)


def describe(path: FieldPath) -> str:
    """Renders a path for messages: .spec.containers[name="a"].image."""
    return "".join(_describe_element(element) for element in path)


def _describe_element(element: str) -> str:
    mark, text = element[0], element[2:]
    if mark == "f":
        return f".{text}"
    if mark == "k":
        keys = json.loads(text)
        return "[" + ",".join(f"{key}={_canonical(value)}" for key, value in keys.items()) + "]"
    return f"[={text}]"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

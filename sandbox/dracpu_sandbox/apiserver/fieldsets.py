"""Sets of fields of an object, which say what a field manager owns and what a write has changed.

A field is a path of elements, written as in `managedFields`: `f:spec` is a field of that name, `k:{"name":"a"}` an
item of a list that is merged by keys, `v:"x"` an item of a list that is a set. Any other list is one value.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.model import Kind, ListType

FieldPath = tuple[str, ...]
FieldSet = frozenset[FieldPath]
Names = tuple[str, ...]  # the field names of a path; items of lists add none

NO_FIELDS: Final[FieldSet] = frozenset()
ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Shape:
    """Which parts of an object are merged, and which are one value."""

    list_type: Callable[[Names], ListType]
    atomic_maps: frozenset[Names] = frozenset()
    status_apart: bool = False  # the status is written through a subresource only

    def divides(self, value: Any, names: Names) -> bool:
        """Whether a value consists of several fields."""
        if isinstance(value, dict):
            return names not in self.atomic_maps
        return isinstance(value, list) and self.list_type(names).kind != "atomic"


def shape_of(kind: Kind) -> Shape:
    """Returns the shape of a kind's objects."""
    return Shape(kind.list_type, kind.atomic_maps, "status" in kind.subresources)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of two objects. A new list or mapping counts as a field itself, besides its parts."""

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
    """Returns all fields of an object."""
    found: set[FieldPath] = set()
    _collect(value, (), (), shape, found)
    return frozenset(found - {()})


def _collect(value: Any, names: Names, path: FieldPath, shape: Shape, found: set[FieldPath]) -> None:
    if not shape.divides(value, names) or value == {}:
        found.add(path)
        return
    for element, inner, child in parts(value, names, shape):
        below = (*path, element)
        if element[0] != "f":
            found.add(below)
        if element[0] != "v":
            _collect(child, inner, below, shape, found)


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    """Compares `new` with `old`."""
    difference = _Difference(shape)
    difference.walk(old, new, (), ())
    return Comparison(frozenset(difference.added), frozenset(difference.modified), frozenset(difference.removed))


class _Difference:
    def __init__(self, shape: Shape) -> None:
        self.added: set[FieldPath] = set()
        self.modified: set[FieldPath] = set()
        self.removed: set[FieldPath] = set()
        self._shape = shape

    def walk(self, old: Any, new: Any, names: Names, path: FieldPath) -> None:
        if old is new:
            return
        if self._divides(old, names) or self._divides(new, names):
            self._walk_parts(old, new, names, path)
        elif old is not ABSENT and new is not ABSENT and old != new:
            self.modified.add(path)
        if old is ABSENT:
            self.added.add(path)
        elif new is ABSENT:
            self.removed.add(path)

    def _walk_parts(self, old: Any, new: Any, names: Names, path: FieldPath) -> None:
        before = self._parts(old, names)
        after = self._parts(new, names)
        for element, (inner, child) in before.items():
            self.walk(child, after.get(element, (inner, ABSENT))[1], inner, (*path, element))
        for element, (inner, child) in after.items():
            if element not in before:
                self.walk(ABSENT, child, inner, (*path, element))

    def _divides(self, value: Any, names: Names) -> bool:
        return bool(value) and self._shape.divides(value, names)

    def _parts(self, value: Any, names: Names) -> dict[str, tuple[Names, Any]]:
        if not self._divides(value, names):
            return {}
        return {element: (inner, child) for element, inner, child in parts(value, names, self._shape)}


def without(value: Any, doomed: FieldSet, shape: Shape, names: Names = (), path: FieldPath = ()) -> Any:
    """Returns the object without some of its fields and their parts."""
    if not doomed or not shape.divides(value, names):
        return value
    kept = [
        without(child, doomed, shape, inner, (*path, element))
        for element, inner, child in parts(value, names, shape)
        if (*path, element) not in doomed
    ]
    if isinstance(value, list):
        return kept
    left = (name for name in value if (*path, f"f:{name}") not in doomed)
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

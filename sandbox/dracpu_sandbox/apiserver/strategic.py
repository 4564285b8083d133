"""Strategic merge patches: lists of built-in kinds are merged by their items' keys, with directives in the patch."""

import json
from collections.abc import Iterable
from typing import Any, Final

from dracpu_sandbox.apiserver.fieldsets import Names, Shape
from dracpu_sandbox.apiserver.refusal import RefusedError

_DIRECTIVE: Final = "$patch"  # replace, delete, merge: what becomes of what is there
_RETAIN: Final = "$retainKeys"  # the names that may stay
_ORDER: Final = "$setElementOrder/"  # the order of a list's items after the patch
_DELETE: Final = "$deleteFromPrimitiveList/"  # values to remove from a list that is a set


def strategic_patched(target: Any, patch: Any, shape: Shape, names: Names = ()) -> Any:
    """What a strategic merge patch makes of a value."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_DIRECTIVE)
    if directive == "delete":
        return {}
    if directive not in {None, "merge", "replace"}:
        raise RefusedError(400, "BadRequest", f"Unknown patch type found: {directive}")
    result = {} if directive == "replace" or not isinstance(target, dict) else dict(target)
    if _RETAIN in patch:
        result = {name: value for name, value in result.items() if name in patch[_RETAIN]}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _patched(result.get(name), value, shape, (*names, name))
    return _in_order(_less_values(result, patch), patch, shape, names)


def _patched(target: Any, patch: Any, shape: Shape, names: Names) -> Any:
    if isinstance(patch, list):
        return _patched_list(target if isinstance(target, list) else [], patch, shape, names)
    return strategic_patched(target, patch, shape, names)


def _patched_list(target: list[Any], patch: list[Any], shape: Shape, names: Names) -> list[Any]:
    list_type = shape.list_type(names)
    items = [item for item in patch if item != {_DIRECTIVE: "replace"}]
    if list_type.kind == "atomic" or len(items) < len(patch):
        return items
    if list_type.kind == "set":
        return [*target, *(item for item in items if item not in target)]
    return _patched_map(target, items, list_type.keys[0], shape, names)


def _patched_map(target: list[Any], patch: list[Any], key: str, shape: Shape, names: Names) -> list[Any]:
    """Items are found by the first of the list's keys, as strategic patches know but one."""
    result = list(target)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise RefusedError(
                400,
                "BadRequest",
                f"map: {json.dumps(item)} does not contain declared merge key: {key} (in {'.'.join(names)})",
            )
        place = next((n for n, one in enumerate(result) if one.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            result = [one for one in result if one.get(key) != item[key]]
        elif place is None:
            result.append(strategic_patched({}, item, shape, names))
        else:
            result[place] = strategic_patched(result[place], item, shape, names)
    return result


def _less_values(result: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    for name, values in _directed(patch, _DELETE):
        if isinstance(result.get(name), list):
            result[name] = [value for value in result[name] if value not in values]
    return result


def _in_order(result: dict[str, Any], patch: dict[str, Any], shape: Shape, names: Names) -> dict[str, Any]:
    """Lists in the order that the patch asks for; items that it does not name keep their place behind others."""
    for name, wanted in _directed(patch, _ORDER):
        items = result.get(name)
        list_type = shape.list_type((*names, name))
        if not isinstance(items, list) or list_type.kind == "atomic":
            continue
        key = list_type.keys[0] if list_type.kind == "map" else None
        order = [_identity(one, key) for one in wanted]
        rank = {identity: place for place, identity in reversed(list(enumerate(order)))}
        result[name] = _ranked(items, [rank.get(_identity(item, key)) for item in items])
    return result


def _ranked(items: list[Any], ranks: list[int | None]) -> list[Any]:
    """Sorted by rank; an item without one stays behind the item that it was behind."""
    behind = -1
    places = []
    for position, rank in enumerate(ranks):
        behind = behind if rank is None else rank
        places.append((behind, rank is None, position))
    return [items[place[2]] for place in sorted(places)]


def _identity(item: Any, key: str | None) -> Any:
    return item.get(key) if key is not None and isinstance(item, dict) else item


def _directed(patch: dict[str, Any], directive: str) -> Iterable[tuple[str, list[Any]]]:
    return ((name.removeprefix(directive), value) for name, value in patch.items() if name.startswith(directive))

"""Strategic merge patches, which merge the lists of built-in kinds by a key of their items.

It supports the directives that kubectl sends for pods and nodes: `$patch: delete` removes an item of a list, and
`$deleteFromPrimitiveList/NAME` removes values. `$setElementOrder/NAME` is ignored: items keep their order, and new
items come last.
"""

from typing import Any, Final

from dracpu_sandbox.apiserver.fieldsets import Names, Shape
from dracpu_sandbox.apiserver.refusal import bad_request, not_supported

_DELETE_VALUES: Final = "$deleteFromPrimitiveList/"
_IGNORED: Final = "$setElementOrder/"


def strategic_patched(target: Any, patch: Any, shape: Shape, names: Names = ()) -> Any:
    """Applies a strategic merge patch to a value; raises RefusedError when the patch is malformed."""
    if isinstance(patch, list):
        return _patched_list(target if isinstance(target, list) else [], patch, shape, names)
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if name.startswith(_DELETE_VALUES):
            field = name.removeprefix(_DELETE_VALUES)
            result[field] = [item for item in result.get(field) or () if item not in value]
        elif value is None:
            result.pop(name, None)
        elif not name.startswith("$"):
            result[name] = strategic_patched(result.get(name), value, shape, (*names, name))
        elif not name.startswith(_IGNORED):
            raise not_supported(f"the directive {name!r} in a strategic merge patch")
    return result


def _patched_list(target: list[Any], patch: list[Any], shape: Shape, names: Names) -> list[Any]:
    list_type = shape.list_type(names)
    if list_type.kind == "atomic":
        return patch
    if list_type.kind == "set":
        return [*target, *(item for item in patch if item not in target)]
    key = list_type.keys[0]  # strategic merge patches use one key, also for lists that have several
    result = list(target)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"an item of {'.'.join(names)} has no {key!r}, by which the list is merged")
        place = next((place for place, present in enumerate(result) if present.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            result = [present for present in result if present.get(key) != item[key]]
        elif place is None:
            result.append(strategic_patched({}, item, shape, names))
        else:
            result[place] = strategic_patched(result[place], item, shape, names)
    return result

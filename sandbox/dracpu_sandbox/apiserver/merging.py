"""Merges an applied configuration into an object: part by part, and lists by the keys of their items."""

from collections import deque
from typing import Any

from dracpu_sandbox.apiserver.fieldsets import ABSENT, Names, Shape, item_element
from dracpu_sandbox.apiserver.kinds.kind import ListType


def merged(live: Any, config: Any, shape: Shape, names: Names = ()) -> Any:
    """Returns the object with all values of the configuration; other fields stay."""
    if live is ABSENT or type(live) is not type(config) or not shape.divides(config, names):
        return config
    if isinstance(config, dict):
        applied = {name: merged(live.get(name, ABSENT), value, shape, (*names, name)) for name, value in config.items()}
        return {**live, **applied}
    return _merged_list(live, config, shape, names)


def _merged_list(live: list[Any], config: list[Any], shape: Shape, names: Names) -> list[Any]:
    """Orders the items as the configuration does; other items stay before the item that they preceded."""
    list_type = shape.list_type(names)
    present, applied = _by_element(live, list_type), _by_element(config, list_type)
    waiting = deque(present)
    shared = deque(element for element in applied if element in present)
    result: list[Any] = []

    def keep_others(up_to: str | None) -> None:
        while waiting and waiting[0] != up_to:
            element = waiting.popleft()
            if element not in applied:
                result.append(present[element])

    for element, item in applied.items():
        keep_others(shared[0] if shared else None)
        if element in present:
            shared.popleft()
        whole = list_type.kind == "set"
        result.append(item if whole else merged(present.get(element, ABSENT), item, shape, names))
    keep_others(None)
    return result


def _by_element(items: list[Any], list_type: ListType) -> dict[str, Any]:
    return {item_element(item, list_type): item for item in items}

"""How an applied configuration is laid over an object: part by part, lists by their items' keys."""

from collections import deque
from typing import Any

from dracpu_sandbox.apiserver.fieldsets import ABSENT, Names, Shape, item_element
from dracpu_sandbox.apiserver.kinds.model import ListType


def merged(live: Any, config: Any, shape: Shape, names: Names = ()) -> Any:
    """The object with everything that the configuration says; what it does not name stays."""
    if live is ABSENT or type(live) is not type(config) or not shape.divides(config, names):
        return config
    if isinstance(config, dict):
        said = {name: merged(live.get(name, ABSENT), value, shape, (*names, name)) for name, value in config.items()}
        return {**live, **said}
    return _merged_list(live, config, shape, names)


def _merged_list(live: list[Any], config: list[Any], shape: Shape, names: Names) -> list[Any]:
    """The configuration's items in its order; what it does not name stays before what it preceded."""
    list_type = shape.list_type(names)
    there, said = _by_element(live, list_type), _by_element(config, list_type)
    waiting = deque(there)
    shared = deque(element for element in said if element in there)
    result: list[Any] = []

    def let_go(up_to: str | None) -> None:
        while waiting and waiting[0] != up_to:
            element = waiting.popleft()
            if element not in said:
                result.append(there[element])

    for element, item in said.items():
        let_go(shared[0] if shared else None)
        if element in there:
            shared.popleft()
        whole = list_type.kind == "set"
        result.append(item if whole else merged(there.get(element, ABSENT), item, shape, names))
    let_go(None)
    return result


def _by_element(items: list[Any], list_type: ListType) -> dict[str, Any]:
    return {item_element(item, list_type): item for item in items}

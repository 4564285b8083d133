"""The paths of columns: field names, each of which may select items of a list by a field that has a text."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

EXAMPLE: Final = '.status.conditions[?(@.type=="Ready")].status'

_STEP: Final = re.compile(r'\.([A-Za-z0-9_]+)(?:\[\?\(@\.([A-Za-z0-9_]+) ?== ?"([^"\\\\]*)"\)\])?')


class Step(NamedTuple):
    """One field name of a path."""

    name: str
    key: str  # of the items that are selected from the list in this field; "": the value of the field itself
    text: str


@lru_cache(maxsize=1024)
def steps_of(path: str) -> Sequence[Step] | None:
    """Returns the steps of a path; None when the sandbox does not support it."""
    steps, position = [], 0
    while match := _STEP.match(path, position):
        steps.append(Step(match[1], match[2] or "", match[3] or ""))
        position = match.end()
    return steps if steps and position == len(path) else None


def first_at(path: str, item: Any) -> Any:
    """Returns the value at a path, as kubectl shows it: the first one of several; None when there is none."""
    return next(_values(steps_of(path) or (), item), None)


def _values(steps: Sequence[Step], value: Any) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, *others = steps
    inside = value.get(step.name) if isinstance(value, dict) else None
    if not step.key:
        found = [] if inside is None else [inside]
    else:
        listed = inside if isinstance(inside, list) else ()
        found = [item for item in listed if isinstance(item, dict) and item.get(step.key) == step.text]
    for one in found:
        yield from _values(others, one)

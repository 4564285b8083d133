r"""The JSONPath of printer columns: .a.b, ['a'], [0], [-1], [*], [?(@.type=="Ready")], dots escaped as \. ."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from dracpu_sandbox.errors import SandboxError

Step = Callable[[Any], Iterator[Any]]

_TOKEN: Final = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\\])+)
    | \[\s*(?P<quoted>'[^']*'|"[^"]*")\s*\]
    | \[\s*(?P<index>-?\d+)\s*\]
    | \[\s*(?P<all>\*)\s*\]
    | \[\?\(\s*@(?P<tested>[^=!<>\s)]+)\s*(?P<operator>==|!=)\s*(?P<literal>'[^']*'|"[^"]*"|[^)\s]+)\s*\)\]""",
    re.VERBOSE,
)


class PathError(SandboxError):
    """A text that is no such path."""


@lru_cache(maxsize=1024)
def parse_path(text: str) -> tuple[Step, ...]:
    """The steps of a path; raises PathError."""
    bare = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if not bare.startswith((".", "[")):
        raise PathError(f"a path begins with a dot, like .spec.mode, not {text!r}")
    steps, position = [], 0
    while position < len(bare):
        token = _TOKEN.match(bare, position)
        if token is None:
            raise PathError(f"not a path: {text!r} from {bare[position:]!r} on")
        steps.append(_step(token))
        position = token.end()
    return tuple(steps)


def find(path: str, item: Any) -> list[Any]:
    """All values at a path; raises PathError when the path is none."""
    found = [item]
    for step in parse_path(path):
        found = [value for one in found for value in step(one)]
    return found


def _step(token: re.Match[str]) -> Step:
    match token.lastgroup:
        case "field":
            name = re.sub(r"\\(.)", r"\1", token["field"])
            return _all if name == "*" else _field(name)
        case "quoted":
            return _field(token["quoted"][1:-1])
        case "index":
            return _index(int(token["index"]))
        case "all":
            return _all
        case _:
            return _filter(token["tested"], token["operator"], _literal(token["literal"]))


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(number: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= number < len(value):
            yield value[number]

    return step


def _all(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _filter(tested: str, operator: str, wanted: object) -> Step:
    def step(value: Any) -> Iterator[Any]:
        for one in value if isinstance(value, list) else ():
            if (wanted in find(tested, one)) == (operator == "=="):
                yield one

    return step


def _literal(text: str) -> object:
    if text[0] in "'\"":
        return text[1:-1]
    if text in {"true", "false"}:
        return text == "true"
    try:
        return int(text)
    except ValueError:
        raise PathError(f"not a value to compare with: {text!r}") from None

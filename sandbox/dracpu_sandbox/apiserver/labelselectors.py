"""Label selectors: texts like `app=web,tier in (a,b),!old`; what is wrong with one is told as the API server does."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from dracpu_sandbox.apiserver.kinds.semantics import names
from dracpu_sandbox.apiserver.refusal import RefusedError, bad_request

LabelTest = Callable[[Mapping[str, str]], bool]

_TOKEN: Final = re.compile(r"==|!=|[(),!=<>]|[^\s(),!=<>]+")
_MARKS: Final = frozenset({"(", ")", ",", "!", "=", "==", "!=", ">", "<"})
_END: Final = ""
_REQUIREMENT: Final = "unable to parse requirement: "


def label_tests(text: str) -> list[LabelTest]:
    """What all must hold for an object to be selected; raises RefusedError for what is no selector."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._place = 0

    def parse(self) -> list[LabelTest]:
        """All requirements."""
        if self._next == _END:
            return []
        if not self._starts_requirement:
            raise self._refused("!, identifier, or 'end of string'", within="")
        tests = [self._requirement()]
        while (found := self._take()) != _END:
            if found != ",":
                raise self._refused("',' or 'end of string'", within="", found=found)
            if not self._starts_requirement:
                raise self._refused("identifier after ','", within="")
            tests.append(self._requirement())
        return tests

    def _requirement(self) -> LabelTest:
        wanted = self._next != "!"
        if not wanted:
            self._take()
        key = self._identifier()
        for problem in names.qualified("<nil>", key):
            raise bad_request(f"{_REQUIREMENT}{problem}")
        if not wanted or self._next in {_END, ","}:
            return lambda labels: (key in labels) is wanted
        return self._comparison(key, self._take())

    def _comparison(self, key: str, operator: str) -> LabelTest:
        match operator:
            case "=" | "==" | "!=":
                value, equal = self._values(key, [self._value()])[0], operator != "!="
                return lambda labels: (labels.get(key) == value) is equal
            case "in" | "notin":
                values, inside = self._values(key, self._list()), operator == "in"
                return lambda labels: (labels.get(key) in values) is inside
            case ">" | "<":
                bound = self._number(self._value())
                return lambda labels: _compares(labels.get(key), operator, bound)
            case _:
                raise self._refused("in, notin, =, ==, !=, gt, lt", found=operator)

    def _list(self) -> list[str]:
        if self._next != "(":
            raise bad_request(f"{_REQUIREMENT}found '{self._next}' expected: '('")
        self._take()
        values = [self._value()]
        while (found := self._take()) == ",":
            values.append(self._value())
        if found != ")":
            raise self._refused("',' or ')'", found=found)
        return values

    def _value(self) -> str:
        """Empty where none is written."""
        return "" if self._next in {_END, ",", ")"} else self._identifier()

    def _values(self, key: str, values: list[str]) -> list[str]:
        for number, value in enumerate(sorted(values)):
            for problem in names.label_value(f"values[{number}][{key}]", value):
                raise bad_request(f"{_REQUIREMENT}{problem}")
        return values

    def _number(self, text: str) -> int:
        if not re.fullmatch(r"[+-]?\d+", text):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise bad_request(f'{_REQUIREMENT}values[0]: Invalid value: "{text}": {detail}')
        return int(text)

    def _identifier(self) -> str:
        if self._next in _MARKS or self._next == _END:
            raise self._refused("identifier")
        return self._take()

    @property
    def _next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else _END

    @property
    def _starts_requirement(self) -> bool:
        return self._next == "!" or (self._next not in _MARKS and self._next != _END)

    def _take(self) -> str:
        token = self._next
        self._place += 1
        return token

    def _refused(self, expected: str, *, within: str = _REQUIREMENT, found: str | None = None) -> RefusedError:
        return bad_request(f"{within}found '{self._next if found is None else found}', expected: {expected}")


def _compares(value: str | None, operator: str, bound: int) -> bool:
    if value is None or not re.fullmatch(r"[+-]?\d+", value):
        return False
    return int(value) > bound if operator == ">" else int(value) < bound

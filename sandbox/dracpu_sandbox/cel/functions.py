"""The functions that Kubernetes adds to CEL, declared: quantities, versions, lists, sets, regular expressions."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from cel_expr_python import cel

from dracpu_sandbox.cel.declaring import Overload, declarations, function, method
from dracpu_sandbox.cel.network import NETWORK
from dracpu_sandbox.cel.quantity import Quantity, QuantityError
from dracpu_sandbox.cel.values import (
    QUANTITY,
    SEMVER,
    Version,
    from_quantity,
    lenient_version,
    message,
    to_quantity,
)

_T: Final = cel.Type
_LIST: Final = cel.Type.List(cel.Type.DYN)


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _as_integer(value: Any) -> int:
    number = to_quantity(value).number
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(number)


def _is_integer(value: Any) -> bool:
    number = to_quantity(value).number
    return number.denominator == 1 and -(2**63) <= number < 2**63


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _number(value: int) -> Quantity:
    return Quantity.parse(value)


_QUANTITIES: Final = (
    function("quantity", QUANTITY, (_T.STRING,), lambda text: from_quantity(Quantity.parse(text))),
    function("isQuantity", _T.BOOL, (_T.STRING,), _is_quantity),
    method("isInteger", _T.BOOL, (QUANTITY,), _is_integer),
    method("asInteger", _T.INT, (QUANTITY,), _as_integer),
    method("asApproximateFloat", _T.DOUBLE, (QUANTITY,), lambda one: float(to_quantity(one).number)),
    method("sign", _T.INT, (QUANTITY,), lambda one: _compare(to_quantity(one).number, 0)),
    method("add", QUANTITY, (QUANTITY, QUANTITY), lambda a, b: from_quantity(to_quantity(a) + to_quantity(b))),
    method("add", QUANTITY, (QUANTITY, _T.INT), lambda a, b: from_quantity(to_quantity(a) + _number(b))),
    method("sub", QUANTITY, (QUANTITY, QUANTITY), lambda a, b: from_quantity(to_quantity(a) - to_quantity(b))),
    method("sub", QUANTITY, (QUANTITY, _T.INT), lambda a, b: from_quantity(to_quantity(a) - _number(b))),
)


def _version(value: Any) -> Version:
    return Version.parse(value.text)


def _is_version(text: str, lenient: bool = False) -> bool:
    try:
        Version.parse(lenient_version(text) if lenient else text)
    except ValueError:
        return False
    return True


def _to_version(text: str, lenient: bool = False) -> Any:
    return message("Semver", str(Version.parse(lenient_version(text) if lenient else text)))


_VERSIONS: Final = (
    function("semver", SEMVER, (_T.STRING,), _to_version),
    function("semver", SEMVER, (_T.STRING, _T.BOOL), _to_version),
    function("isSemver", _T.BOOL, (_T.STRING,), _is_version),
    function("isSemver", _T.BOOL, (_T.STRING, _T.BOOL), _is_version),
    method("major", _T.INT, (SEMVER,), lambda one: _version(one).major),
    method("minor", _T.INT, (SEMVER,), lambda one: _version(one).minor),
    method("patch", _T.INT, (SEMVER,), lambda one: _version(one).patch),
)


def _comparable(value: Any) -> Any:
    return to_quantity(value) if value.DESCRIPTOR.name == "Quantity" else _version(value)


def _comparison(name: str, result: cel.Type, compare: Callable[[Any, Any], Any]) -> tuple[Overload, Overload]:
    """A method that quantities and versions have both: two for the type checker, one when it runs."""
    return (
        method(name, result, (QUANTITY, QUANTITY), lambda a, b: compare(_comparable(a), _comparable(b))),
        method(name, result, (SEMVER, SEMVER), None),
    )


_COMPARISONS: Final = (
    *_comparison("isGreaterThan", _T.BOOL, lambda a, b: a > b),
    *_comparison("isLessThan", _T.BOOL, lambda a, b: a < b),
    *_comparison("compareTo", _T.INT, _compare),
)


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(left <= right for left, right in pairwise(items))


def _first(choose: Callable[[Sequence[Any]], Any], items: Sequence[Any]) -> Any:
    if not items:
        raise ValueError("the list is empty")
    return choose(items)


_LISTS: Final = (
    method("isSorted", _T.BOOL, (_LIST,), _is_sorted),
    method("sum", _T.DYN, (_LIST,), sum),
    method("min", _T.DYN, (_LIST,), lambda items: _first(min, items)),
    method("max", _T.DYN, (_LIST,), lambda items: _first(max, items)),
    function("sets.contains", _T.BOOL, (_LIST, _LIST), lambda a, b: all(one in a for one in b)),
    function("sets.intersects", _T.BOOL, (_LIST, _LIST), lambda a, b: any(one in a for one in b)),
    function(
        "sets.equivalent",
        _T.BOOL,
        (_LIST, _LIST),
        lambda a, b: all(one in a for one in b) and all(one in b for one in a),
    ),
)


_CLASS_OF_RE2: Final = re.compile(r"\[:\^?[a-z]+:\]")


def _pattern(text: str) -> re.Pattern[str]:
    """Python would read a class like [:alpha:] as some letters, and find something else."""
    if found := _CLASS_OF_RE2.search(text):
        raise ValueError(f"{found[0]} is not known to find and findAll of the sandbox: write the characters, as in a-z")
    return re.compile(text)


def _find(text: str, pattern: str) -> str:
    found = _pattern(pattern).search(text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [one[0] for one in _pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


_REGULAR_EXPRESSIONS: Final = (
    method("find", _T.STRING, (_T.STRING, _T.STRING), _find),
    method("findAll", _T.List(_T.STRING), (_T.STRING, _T.STRING), _find_all),
    method("findAll", _T.List(_T.STRING), (_T.STRING, _T.STRING, _T.INT), _find_all),
)

FUNCTIONS: Final = tuple(
    declarations((*_QUANTITIES, *_VERSIONS, *_COMPARISONS, *_LISTS, *_REGULAR_EXPRESSIONS, *NETWORK))
)

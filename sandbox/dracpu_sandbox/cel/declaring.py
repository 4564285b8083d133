"""Short words to declare functions of CEL."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cel_expr_python import cel


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function. A `member` is called on its first parameter.

    When an expression runs, messages of all types look the same: of overloads that differ in these alone only one may
    have a `call`, and it must tell them apart.
    """

    name: str
    result: cel.Type
    parameters: Sequence[cel.Type]
    call: Callable[..., Any] | None
    member: bool


def function(name: str, result: cel.Type, parameters: Sequence[cel.Type], call: Callable[..., Any]) -> Overload:
    """`name(parameters)`."""
    return Overload(name, result, parameters, call, member=False)


def method(name: str, result: cel.Type, parameters: Sequence[cel.Type], call: Callable[..., Any] | None) -> Overload:
    """`first.name(others)`."""
    return Overload(name, result, parameters, call, member=True)


def declarations(overloads: Sequence[Overload]) -> list[cel.FunctionDecl]:
    """Everything that bears one name must be declared at once."""
    by_name: dict[str, list[Overload]] = {}
    for one in overloads:
        by_name.setdefault(one.name, []).append(one)
    return [cel.FunctionDecl(name, [_declared(one) for one in group]) for name, group in by_name.items()]


def _declared(one: Overload) -> cel.Overload:
    parameters = list(one.parameters)
    signature = "_".join([one.name, "on" if one.member else "of", *(parameter.name() for parameter in parameters)])
    return cel.Overload(signature, return_type=one.result, parameters=parameters, is_member=one.member, impl=one.call)

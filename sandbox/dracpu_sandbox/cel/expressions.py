"""Expressions in CEL with Kubernetes' functions, evaluated by the C++ library of CEL's authors.

What it lacks against Kubernetes: `format.*()` validators (they return optionals, which cannot come from Python),
`indexOf` and `lastIndexOf` of lists (declared by the strings extension, which allows no second declaration), the
two-variable macros, images, `sum`, `min` and `max` of durations and times, comparing numbers whose types are known and
differ, RE2's syntax in `find` and `findAll` (Python's is theirs), and the estimation of costs.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from dracpu_sandbox.cel.functions import FUNCTIONS
from dracpu_sandbox.cel.values import POOL
from dracpu_sandbox.errors import SandboxError

DEVICE: Final = ("device",)  # the variables of selectors of devices

_KEPT: Final = 4096


class CelError(SandboxError):
    """An expression does not compile, or has no value for these variables."""


class Expression:
    """A compiled expression. Get one from `compile_expression`."""

    def __init__(self, source: str, program: cel.Expression) -> None:
        self.source = source
        self._program = program

    def evaluate(self, /, **variables: object) -> Any:
        """The value in plain Python. Raises CelError."""
        return self.evaluate_with(variables)

    def evaluate_with(self, variables: Mapping[str, object]) -> Any:
        """The same, for variables whose names are data."""
        try:
            value = self._program.eval(data=variables)
            failed = value.type() == cel.Type.ERROR
            plain = value.plain_value()
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise CelError(f"{self.source}: {error}") from error
        if failed:
            raise CelError(f"{self.source}: {plain}")
        return plain


@lru_cache(maxsize=_KEPT)
def compile_expression(source: str, variables: tuple[str, ...]) -> Expression:
    """Compiles once; `variables` are the names that the expression may use. Raises CelError."""
    try:
        return Expression(source, _environment(variables).compile(source))
    except RuntimeError as error:
        raise CelError(_compile_message(source, str(error))) from error


@lru_cache(maxsize=64)
def _environment(variables: tuple[str, ...]) -> cel.Env:
    extensions: list[object] = [ext_optional.ExtOptional(), ext_strings.ExtStrings()]
    if variables == DEVICE:
        extensions.append(ext_bindings.ExtBindings())  # Kubernetes: cel.bind is for selectors only
    return cel.NewEnv(
        descriptor_pool=POOL,
        variables=dict.fromkeys(variables, cel.Type.DYN),
        functions=list(FUNCTIONS),
        extensions=extensions,
    )


def _compile_message(source: str, message: str) -> str:
    """One line of what the library says in several: the first mistake and its column."""
    found = re.search(r"ERROR: <input>:(\d+):(\d+): (.*)", message)
    return f"{source}: {found[3]} (line {found[1]}, column {found[2]})" if found else f"{source}: {message}"

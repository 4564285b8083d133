"""Expressions in CEL, evaluated by the C++ library of CEL's authors, with Kubernetes' functions on quantities.

Kubernetes has more functions, which no rule and no page of this project uses; an expression that calls one is refused
by name. docs/dev/sandbox.md lists all differences.
"""

import re
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from dracpu_sandbox.cel.functions import FUNCTIONS, POOL
from dracpu_sandbox.errors import ALTERNATIVE, SandboxError

DEVICE: Final = ("device",)  # the variables of selectors of devices

_KEPT: Final = 4096
_FUNCTIONS_OF_KUBERNETES: Final = frozenset(
    {
        "asApproximateFloat", "cidr", "find", "findAll", "format", "image", "ip", "isCIDR", "isImage", "isIP",
        "isQuantity", "isSemver", "isSorted", "isURL", "max", "min", "semver", "sets", "sign", "sum", "url",
    }
)  # fmt: skip


class CelError(SandboxError):
    """An expression does not compile, or has no value for these variables."""


class Expression:
    """A compiled expression, as `compile_expression` returns it."""

    def __init__(self, source: str, program: cel.Expression) -> None:
        self.source = source
        self._program = program

    def evaluate(self, /, **variables: object) -> Any:
        """Returns the value in plain Python. Raises CelError."""
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
    """Compiles an expression, once; `variables` are the names that it may use. Raises CelError."""
    try:
        return Expression(source, _environment(variables).compile(source))
    except RuntimeError as error:
        raise CelError(_compile_message(source, str(error))) from error


@lru_cache(maxsize=64)
def _environment(variables: tuple[str, ...]) -> cel.Env:
    extensions: list[object] = [ext_optional.ExtOptional(), ext_strings.ExtStrings()]
    if variables == DEVICE:
        extensions.append(ext_bindings.ExtBindings())  # Kubernetes supports cel.bind in selectors only
    return cel.NewEnv(
        descriptor_pool=POOL,
        variables=dict.fromkeys(variables, cel.Type.DYN),
        functions=list(FUNCTIONS),
        extensions=extensions,
    )


def _compile_message(source: str, message: str) -> str:
    """Shortens the library's message to its first mistake and the column, in one line."""
    found = re.search(r"ERROR: <input>:(\d+):(\d+): (.*)", message)
    if not found:
        return f"{source}: {message}"
    line, column, mistake = found.groups()
    unknown = re.search(r"undeclared reference to '(\w+)'", mistake)
    if unknown and unknown[1] in _FUNCTIONS_OF_KUBERNETES:
        mistake = f"the sandbox does not support Kubernetes' function '{unknown[1]}'; {ALTERNATIVE}"
    return f"{source}: {mistake} (line {line}, column {column})"

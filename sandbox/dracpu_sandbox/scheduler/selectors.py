"""Which devices a request means: the expressions of its class and its own."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from dracpu_sandbox.cel.expressions import DEVICE, CelError, Expression, compile_expression
from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.devices import Device, Look

_DOMAIN: Final = re.compile(r"""\[\s*(?:"([^"\\]+)"|'([^'\\]+)')\s*\]""")
_KEPT: Final = 65_536  # answers: some tens of expressions on some thousands of devices that look different


def matches(device: Device, selectors: Iterable[str]) -> bool:
    """Whether all expressions hold; the first that does not ends it. Raises CelError."""
    return all(_holds(device, selector) for selector in selectors)


def _holds(device: Device, source: str) -> bool:
    answer = _answer(source, device.look)
    if isinstance(answer, CelError):
        raise answer
    return answer


@lru_cache(maxsize=_KEPT)
def _answer(source: str, look: Look) -> bool | CelError:
    """What looks the same gets the same answer, or the lack of one."""
    try:
        return _selector(source).evaluate(look.device.variables)
    except CelError as error:
        return error


class _Selector:
    """A compiled selector, and the domains that it names."""

    def __init__(self, expression: Expression, domains: frozenset[str]) -> None:
        self._expression = expression
        self._domains = domains

    def evaluate(self, variables: JsonObject) -> bool:
        absent = self._domains - variables["attributes"].keys() | self._domains - variables["capacity"].keys()
        if absent:  # an unknown domain is an empty map in Kubernetes, not an error
            empty: dict[str, object] = {domain: {} for domain in absent}
            variables = {
                **variables,
                "attributes": empty | variables["attributes"],
                "capacity": empty | variables["capacity"],
            }
        answer = self._expression.evaluate(device=variables)
        if not isinstance(answer, bool):
            raise CelError(f"{self._expression.source}: the result is not a bool")
        return answer


@lru_cache(maxsize=1024)
def _selector(source: str) -> _Selector:
    domains = frozenset(double or single for double, single in _DOMAIN.findall(source))
    return _Selector(compile_expression(source, DEVICE), domains)

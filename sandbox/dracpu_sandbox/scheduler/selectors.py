"""Evaluates the CEL selectors of a request and its class for a device."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from dracpu_sandbox.cel.expressions import DEVICE, CelError, compile_expression
from dracpu_sandbox.scheduler.devices import Device

_DOMAIN: Final = re.compile(r"""\[\s*(?:"([^"\\]+)"|'([^'\\]+)')\s*\]""")
_KEPT: Final = 16_384  # cached answers: a few expressions for some thousands of devices


def matches(device: Device, selectors: Iterable[str]) -> bool:
    """Whether the device meets all selectors; stops at the first one that it does not meet. Raises CelError."""
    return all(_holds(selector, device) for selector in selectors)


@lru_cache(maxsize=_KEPT)
def _holds(source: str, device: Device) -> bool:
    variables = device.variables
    for domain in _domains(source):  # Kubernetes: an unknown domain is an empty map, not an error
        for part in ("attributes", "capacity"):
            if domain not in variables[part]:
                variables = {**variables, part: {**variables[part], domain: {}}}
    answer = compile_expression(source, DEVICE).evaluate(device=variables)
    if not isinstance(answer, bool):
        raise CelError(f"{source}: the result is not a bool")
    return answer


@lru_cache(maxsize=1024)
def _domains(source: str) -> frozenset[str]:
    return frozenset(double or single for double, single in _DOMAIN.findall(source))

"""Kubernetes quantities ("2", "2000m", "1k", "2e0") that are whole numbers."""

import re
from decimal import Decimal
from typing import Final

_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?"
)
_SUFFIX: Final = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def whole_number(quantity: str) -> int | None:
    """The quantity as a number of CPUs or bytes, or None if it is not a positive whole number."""
    return whole_number_or_zero(quantity) or None


def whole_number_or_zero(quantity: str) -> int | None:
    """The quantity as a number of bytes, or None if it is not a whole number or is negative."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    value = Decimal(number) * _SUFFIX.get(suffix, Decimal(1)) * Decimal(10) ** int(exponent or 0)
    return int(value) if value >= 0 and value == value.to_integral_value() else None


def format_binary(amount: int) -> str:
    """A whole number with the largest binary suffix that leaves it whole: 2097152 is "2Mi"."""
    suffixes = ["", *(f"{suffix}i" for suffix in "KMGTPE")]
    while amount and amount % 1024 == 0 and len(suffixes) > 1:
        amount //= 1024
        del suffixes[0]
    return f"{amount}{suffixes[0]}"


def format_quantity(amount: int) -> str:
    """A whole number in the API server's own form: it stores 2000 as "2k"."""
    suffixes = ["", "k", "M", "G", "T", "P", "E"]
    while amount and amount % 1000 == 0 and len(suffixes) > 1:
        amount //= 1000
        del suffixes[0]
    return f"{amount}{suffixes[0]}"

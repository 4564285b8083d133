"""Quantities as Kubernetes writes them: exact numbers with a suffix ("500m", "2Ki", "1e3")."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, total_ordering
from math import ceil, floor
from typing import Final, Literal

from dracpu_sandbox.errors import SandboxError

Notation = Literal["decimal", "binary", "exponent"]

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_TEXT: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_FINEST_SCALE: Final = -9
_FINEST: Final = Fraction(1, 10**9)  # finer numbers are rounded away from zero
_LARGEST_EXPONENT: Final = 64  # larger exponents are mistakes, and would use much memory


class QuantityError(SandboxError):
    """The text is not a quantity."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact number and the notation in which it was written. Quantities are equal when their numbers are."""

    number: Fraction
    notation: Notation = "decimal"

    @classmethod
    def parse(cls, text: str | int | float) -> "Quantity":
        """Parses a text or a number; raises QuantityError."""
        return _parse(str(text))

    @staticmethod
    def stored(text: str | int | float) -> str:
        """Renders the text that the API server stores: the canonical one, except that it keeps decimal texts that are
        nearly canonical, such as "1e9" and "08". Raises QuantityError."""
        return str(text) if _is_kept(str(text)) else Quantity.parse(text).text

    @property
    def text(self) -> str:
        """Renders the canonical text: without a fraction, and with the largest suffix that allows this."""
        notation = self.notation
        if notation == "binary" and (abs(self.number) < 1024 or self.number.denominator != 1):
            notation = "decimal"
        return _in_binary(int(self.number)) if notation == "binary" else _in_decimal(self.number, notation)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __lt__(self, other: "Quantity") -> bool:
        return self.number < other.number

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.number + other.number, self.notation)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.number - other.number, self.notation)

    def whole(self) -> int:
        """Rounds away from zero to a whole number."""
        return ceil(self.number) if self.number > 0 else floor(self.number)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _TEXT.fullmatch(text)
    if not match:
        raise QuantityError(f'"{text}" is not a quantity: write a number with a suffix like "500m", "2" or "1Gi"')
    number, suffix = Fraction(match["number"]), match["suffix"] or ""
    if match["exponent"] is not None:
        exponent = int(match["exponent"])
        if abs(exponent) > _LARGEST_EXPONENT:
            raise QuantityError(f'"{text}" is not a quantity: its exponent must be at most {_LARGEST_EXPONENT}')
        return Quantity(_not_too_fine(number * Fraction(10) ** exponent), "exponent")
    if suffix in _BINARY:
        return Quantity(_not_too_fine(number * 2 ** _BINARY[suffix]), "binary")
    return Quantity(_not_too_fine(number * Fraction(10) ** _DECIMAL[suffix]), "decimal")


def _is_kept(text: str) -> bool:
    """Whether the server's parser keeps the text (apimachinery's ParseQuantity)."""
    match = _TEXT.fullmatch(text)
    if not match or match["suffix"] in _BINARY:
        return False  # binary texts that the parser keeps are canonical
    whole, _, fraction = match["number"].lstrip("+-").partition(".")
    digits = (whole.lstrip("0") or "0") + fraction
    exponent = int(match["exponent"] or _DECIMAL[match["suffix"] or ""])
    scale = exponent - len(fraction)
    return scale % 3 == 0 and scale >= _FINEST_SCALE and not digits.endswith("000") and digits[0] != "0"


def _not_too_fine(number: Fraction) -> Fraction:
    steps = number / _FINEST
    return number if steps.denominator == 1 else (ceil(steps) if steps > 0 else floor(steps)) * _FINEST


def _in_binary(number: int) -> str:
    for suffix, bits in reversed(_BINARY.items()):
        if number % (1 << bits) == 0:
            return f"{number >> bits}{suffix}"
    return str(number)


def _in_decimal(number: Fraction, notation: Notation) -> str:
    if number == 0:
        return "0"
    exponent = 18
    while (number / Fraction(10) ** exponent).denominator != 1:
        exponent -= 3
    mantissa = int(number / Fraction(10) ** exponent)
    if notation == "exponent":
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX[exponent]}"

"""Reads the fields of a JSON object: those that are known, with an error that names a wrong one, and what is left."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeVar

from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError
from dracpu_api.memory_kinds import LIMIT, PAGE_SIZES
from dracpu_api.quantity import whole_number

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_E = TypeVar("_E", bound=StrEnum)


class SettingsError(ValueError):
    """A spec that cannot be decoded; the message names the field."""


def nothing() -> Mapping[str, Any]:
    """No fields; the default of fields that hold what is unknown."""
    return NOTHING


class Fields:
    """The fields of a JSON object that have not been read yet. Those that are left at the end are unknown."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise SettingsError(f"{path} must be an object, got {_shown(value)}")
        self._left = dict(value)
        self._path = path

    def nested(self, name: str, *, optional: bool = False) -> "Fields":
        """The fields of an object inside of this one; none if it is absent and optional."""
        value = self._left.pop(name, None)
        return Fields({} if value is None and optional else value, f"{self._path}.{name}")

    def items(self, name: str) -> list["Fields"]:
        """The fields of each object in a list; an absent list is empty."""
        value = self._left.pop(name, None)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return [Fields(item, f"{self._path}.{name}[{index}]") for index, item in enumerate(value)]

    def text(self, name: str, *, default: str | None = None) -> str:
        """A text that is not empty."""
        value = self._left.pop(name, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a non-empty text", value)
        return value

    def integer(self, name: str, *, default: int | None = None) -> int:
        """A whole number."""
        value = self._left.pop(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, "a whole number", value)
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """true or false."""
        value = self._left.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def choice(self, name: str, choices: type[_E], default: _E) -> _E:
        """One of several words."""
        value = self._left.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, str) or value not in set(choices):
            raise self.wrong(name, f"one of {', '.join(choices)}", value)
        return choices(value)

    def cpuset(self, name: str) -> CpuSet:
        """A set of CPUs in the kernel's list format; empty if it is absent."""
        value = self._left.pop(name, None)
        if value is None:
            return EMPTY
        if not isinstance(value, str):
            raise self.wrong(name, 'a cpuset like "0-3,8"', value)
        try:
            return CpuSet.parse(value)
        except CpuSetError as error:
            raise SettingsError(f"{self._path}.{name}: {error}") from error

    def amount(self, name: str) -> int | None:
        """An amount of memory in bytes, written as a quantity; None if it is absent."""
        value = self._left.pop(name, None)
        if value is None:
            return None
        amount = whole_number(value) if isinstance(value, str) else None
        if amount is None or amount >= LIMIT:
            raise self.wrong(name, 'an amount of memory like "512Mi", a whole number of bytes above 0', value)
        return amount

    def numbers(self, name: str) -> tuple[tuple[str, int], ...]:
        """The values of an object whose values are whole numbers, sorted by their names; none if it is absent."""
        value = self._left.pop(name, None)
        numbers = Fields({} if value is None else value, f"{self._path}.{name}")
        return tuple((key, numbers.integer(key)) for key in sorted(numbers._left))

    def page_size(self, name: str) -> int:
        """A size of hugepages in bytes."""
        value = self._left.pop(name, None)
        size = whole_number(value) if isinstance(value, str) else None
        if size not in PAGE_SIZES:
            raise self.wrong(name, 'a size like "2Mi", which is a power of two from 16Ki to 16Gi', value)
        return size

    def page_sizes(self, name: str) -> tuple[int, ...] | None:
        """Sizes of hugepages in bytes, ascending; None if the list is absent."""
        value = self._left.pop(name, None)
        if value is None:
            return None
        listed = value if isinstance(value, list) else [value]
        sizes = {whole_number(item) if isinstance(item, str) else None for item in listed}
        if listed is not value or not sizes <= set(PAGE_SIZES):
            raise self.wrong(name, 'a list of sizes like "2Mi", which are powers of two from 16Ki to 16Gi', value)
        return tuple(size for size in PAGE_SIZES if size in sizes)

    def unknown(self, **nested: Mapping[str, Any] | list[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The fields that are left, and what is unknown inside of those that were read."""
        return {**self._left, **{name: value for name, value in nested.items() if value}} or NOTHING

    def wrong(self, name: str, expected: str, value: object) -> SettingsError:
        """The error about a field whose value is not what is expected."""
        return SettingsError(f"{self._path}.{name} must be {expected}, got {_shown(value)}")


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{value!r}"

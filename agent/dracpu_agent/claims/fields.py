"""Reads the fields of a claim's record one by one, so that those that are left are known to be unknown."""

from typing import TypeVar

from dracpu_api.errors import DriverError

_T = TypeVar("_T")


class RecordError(DriverError):
    """A record that this agent cannot decode; the message names the fault."""


class Fields:
    """The fields of a record; those that are left at the end are unknown."""

    def __init__(self, record: object, what: str) -> None:
        if not isinstance(record, dict):
            raise RecordError(f"{what} is not an object")
        self.left = dict(record)
        self._what = what

    def take(self, name: str, kind: type[_T]) -> _T:
        """The value of a field; raises RecordError if it is missing or of another type."""
        value = self.left.pop(name, None)
        if not isinstance(value, kind):
            raise RecordError(f"{self._what} has no valid field {name}")
        return value

    def text(self, name: str) -> str:
        """A text that is not empty; raises RecordError."""
        text = self.take(name, str)
        if not text:
            raise RecordError(f"{self._what} has an empty field {name}")
        return text

    def text_or_none(self, name: str) -> str | None:
        """A text that is not empty, or None where the field is null or missing; raises RecordError."""
        if self.left.get(name) is None:
            self.left.pop(name, None)
            return None
        return self.text(name)

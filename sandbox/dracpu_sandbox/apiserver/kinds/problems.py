"""What is wrong with an object, in the form that the API server uses: field, kind of error, value, detail."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.refusal import Cause, RefusedError
from dracpu_sandbox.apiserver.refusal import invalid as refused
from dracpu_sandbox.errors import ALTERNATIVE

_OMITTED: Final = object()  # the value is not shown
NOWHERE: Final = "<nil>"  # the API server's word for an error that belongs to no field


@dataclass(frozen=True, slots=True)
class Problem:
    """One error of one field."""

    field: str
    reason: str  # of the cause in a Status
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def invalid(field: str, value: Any, detail: str) -> Problem:
    """The value is wrong."""
    shown = "" if value is _OMITTED else f"{shown_as(value)}: "
    return Problem(field, "FieldValueInvalid", f"Invalid value: {shown}{detail}")


def invalid_without_value(field: str, detail: str) -> Problem:
    """The value is wrong and too long to be shown."""
    return invalid(field, _OMITTED, detail)


def type_invalid(field: str, found: str, detail: str) -> Problem:
    """The value has another type than the field."""
    return Problem(field, "FieldValueTypeInvalid", f"Invalid value: {shown_as(found)}: {detail}")


def required(field: str, detail: str = "") -> Problem:
    """The field is missing."""
    return Problem(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def duplicate(field: str, value: Any) -> Problem:
    """Another item has the same value."""
    return Problem(field, "FieldValueDuplicate", f"Duplicate value: {shown_as(value)}")


def forbidden(field: str, detail: str) -> Problem:
    """The field must not be set, or not be changed."""
    return Problem(field, "FieldValueForbidden", f"Forbidden: {detail}")


def unsupported(field: str, value: Any, supported: Iterable[Any]) -> Problem:
    """The value is not one of the allowed ones."""
    choices = ", ".join(shown_as(choice) for choice in supported)
    message = f"Unsupported value: {shown_as(value)}" + (f": supported values: {choices}" if choices else "")
    return Problem(field, "FieldValueNotSupported", message)


def too_long(field: str, limit: int) -> Problem:
    """The text is too long."""
    return Problem(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> Problem:
    """The list or map has too many entries."""
    return Problem(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def unsupported_here(field: str, what: str) -> Problem:
    """A real API server supports this, and the sandbox does not."""
    return forbidden(field, f"the sandbox does not support {what}; {ALTERNATIVE}")


def not_found(field: str, value: Any, detail: str = "") -> Problem:
    """The value refers to nothing."""
    return Problem(field, "FieldValueNotFound", f"Not found: {shown_as(value)}" + (f": {detail}" if detail else ""))


def shown_as(value: Any) -> str:
    """A value as messages show it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def refusal(kind: Kind, name: str, problems: Sequence[Problem]) -> RefusedError:
    """The error that says that an object is invalid, and why."""
    shown = replace(kind, group="") if kind.stored_as else kind  # events of both groups are named alike
    different = dict.fromkeys(problems)  # the same error is reported once
    return refused(shown, name, *(Cause(problem.field, problem.message, problem.reason) for problem in different))

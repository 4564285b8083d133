"""Problems of objects, in the form that the API server reports: field, kind of error, value, detail."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.refusal import Cause, RefusedError
from dracpu_sandbox.apiserver.refusal import invalid as refused
from dracpu_sandbox.errors import ALTERNATIVE

_OMITTED: Final = object()  # the value is not shown
NOWHERE: Final = "<nil>"  # the API server's name for the field of an error that concerns the whole object


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of a field."""

    field: str
    reason: str  # of the cause in a Status
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def invalid(field: str, value: Any, detail: str) -> Problem:
    """Returns the problem of a wrong value."""
    shown = "" if value is _OMITTED else f"{shown_as(value)}: "
    return Problem(field, "FieldValueInvalid", f"Invalid value: {shown}{detail}")


def invalid_without_value(field: str, detail: str) -> Problem:
    """Returns the problem of a wrong value that is too long for a message."""
    return invalid(field, _OMITTED, detail)


def type_invalid(field: str, found: str, detail: str) -> Problem:
    """Returns the problem of a value whose type is not that of the field."""
    return Problem(field, "FieldValueTypeInvalid", f"Invalid value: {shown_as(found)}: {detail}")


def required(field: str, detail: str = "") -> Problem:
    """Returns the problem of a missing field."""
    return Problem(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def duplicate(field: str, value: Any) -> Problem:
    """Returns the problem of a value that an earlier item has."""
    return Problem(field, "FieldValueDuplicate", f"Duplicate value: {shown_as(value)}")


def forbidden(field: str, detail: str) -> Problem:
    """Returns the problem of a field that must not be set or changed."""
    return Problem(field, "FieldValueForbidden", f"Forbidden: {detail}")


def unsupported(field: str, value: Any, supported: Iterable[Any]) -> Problem:
    """Returns the problem of a value that is not among the supported values."""
    choices = ", ".join(shown_as(choice) for choice in supported)
    message = f"Unsupported value: {shown_as(value)}" + (f": supported values: {choices}" if choices else "")
    return Problem(field, "FieldValueNotSupported", message)


def too_long(field: str, limit: int) -> Problem:
    """Returns the problem of a text that is too long."""
    return Problem(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> Problem:
    """Returns the problem of a list or map with too many entries."""
    return Problem(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def unsupported_here(field: str, what: str) -> Problem:
    """Returns the problem of a feature that a real API server supports and the sandbox does not."""
    return forbidden(field, f"the sandbox does not support {what}; {ALTERNATIVE}")


def not_found(field: str, value: Any, detail: str = "") -> Problem:
    """Returns the problem of a value that refers to an item that does not exist."""
    return Problem(field, "FieldValueNotFound", f"Not found: {shown_as(value)}" + (f": {detail}" if detail else ""))


def shown_as(value: Any) -> str:
    """Renders a value for messages."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def refusal(kind: Kind, name: str, problems: Sequence[Problem]) -> RefusedError:
    """Returns the error for an invalid object, with its problems as causes."""
    shown = replace(kind, group="") if kind.stored_as else kind  # messages name events of both groups alike
    different = dict.fromkeys(problems)  # each problem is reported once
    return refused(shown, name, *(Cause(problem.field, problem.message, problem.reason) for problem in different))

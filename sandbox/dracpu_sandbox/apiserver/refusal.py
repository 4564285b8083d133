"""Refusals: errors that become a Status object in the answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.errors import ALTERNATIVE

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why an object is invalid."""

    field: str  # like spec.reservedCPUs
    message: str
    reason: str = "FieldValueInvalid"


class RefusedError(Exception):
    """Refuses a request; the server answers with its Status object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        causes: Sequence[Cause] = (),
        retry_after: int | None = None,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details: JsonObject | None = None if details is None else dict(details)
        self.causes = tuple(causes)
        self.retry_after = retry_after  # seconds
        self.continue_token = continue_token  # of the next page of a list

    @property
    def status(self) -> JsonObject:
        """Returns the body of the answer."""
        details = self.details
        if self.causes:
            causes = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in self.causes]
            details = {**(details or {}), "causes": causes}
        if self.retry_after is not None:
            details = {**(details or {}), "retryAfterSeconds": self.retry_after}
        body: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }
        return body if details is None else {**body, "details": details}


def named(kind: Kind, name: str) -> JsonObject:
    """Returns the details of a Status about one object."""
    group = {"group": kind.group} if kind.group else {}
    return {"name": name, **group, "kind": kind.plural}


def bad_request(message: str) -> RefusedError:
    """Returns the error for a malformed request."""
    return RefusedError(400, "BadRequest", message)


def not_supported(what: str, code: int = 400, reason: str = "BadRequest") -> RefusedError:
    """Returns the error for a feature that a real API server supports and the sandbox does not."""
    return RefusedError(code, reason, f"the sandbox does not support {what}; {ALTERNATIVE}", details={})


def not_found(kind: Kind, name: str) -> RefusedError:
    """Returns the error for an object that does not exist."""
    return RefusedError(404, "NotFound", f'{kind.resource} "{name}" not found', details=named(kind, name))


def already_exists(kind: Kind, name: str) -> RefusedError:
    """Returns the error for a new object whose name another object has."""
    message = f'{kind.resource} "{name}" already exists'
    return RefusedError(409, "AlreadyExists", message, details=named(kind, name))


def conflict(kind: Kind, name: str, why: str) -> RefusedError:
    """Returns the error for an object that is not in the state that the request expects."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return RefusedError(409, "Conflict", message, details=named(kind, name))


def forbidden(kind: Kind, name: str, why: str) -> RefusedError:
    """Returns the error for an operation that the present state does not allow."""
    return RefusedError(403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', details=named(kind, name))


def invalid(kind: Kind, name: str, *causes: Cause) -> RefusedError:
    """Returns the error for an invalid object; each cause describes a problem."""
    what = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    listed = [f"{cause.field}: {cause.message}" for cause in causes]
    why = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    details = {**named(kind, name), "kind": kind.kind}
    return RefusedError(422, "Invalid", f'{what} "{name}" is invalid: {why}', details=details, causes=causes)


def unknown_fields(kind: Kind, fields: Sequence[str], *, patched: bool) -> RefusedError:
    """Returns the error for unknown fields; after a patch Invalid, so that `kubectl edit` opens the editor again."""
    why = f"strict decoding error: {', '.join(fields)}"
    if not patched:
        return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')
    cause = Cause("patch", f"Invalid value: {why}")
    return RefusedError(422, "Invalid", f' "" is invalid: {cause.field}: {cause.message}', causes=[cause])


def expired(requested: int, oldest: int) -> RefusedError:
    """Returns the error for a revision that is too old."""
    return RefusedError(410, "Expired", f"too old resource version: {requested} ({oldest})")


def expired_page(token: str) -> RefusedError:
    """Returns the error for the next page of a list that is too old; `token` is of a page that shows the present."""
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. "
        "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
        "deleted between the time the first chunk was returned and now may show up in the list."
    )
    return RefusedError(410, "Expired", message, continue_token=token)


def nothing_here() -> RefusedError:
    """Returns the error for a path at which nothing is served."""
    # kubectl reads the details unchecked: `kubectl debug` panics without them
    return RefusedError(404, "NotFound", "the server could not find the requested resource", details={})


def not_allowed() -> RefusedError:
    """Returns the error for a method that the resource does not support."""
    message = "the server does not allow this method on the requested resource"
    return RefusedError(405, "MethodNotAllowed", message, details={})

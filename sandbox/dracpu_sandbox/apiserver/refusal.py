"""How the API server says no: an error that becomes a Status object."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.errors import ALTERNATIVE

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One of the reasons why an object is invalid."""

    field: str  # like spec.reservedCPUs
    message: str
    reason: str = "FieldValueInvalid"


class RefusedError(Exception):
    """Becomes the answer: a Status object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        causes: Sequence[Cause] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details: JsonObject | None = None if details is None else dict(details)
        self.causes = tuple(causes)
        self.retry_after = retry_after  # seconds

    @property
    def status(self) -> JsonObject:
        """The body of the answer."""
        details = self.details
        if self.causes:
            causes = [{"reason": one.reason, "message": one.message, "field": one.field} for one in self.causes]
            details = {**(details or {}), "causes": causes}
        if self.retry_after is not None:
            details = {**(details or {}), "retryAfterSeconds": self.retry_after}
        body: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }
        return body if details is None else {**body, "details": details}


def named(kind: Kind, name: str) -> JsonObject:
    """The details of a Status that is about one object."""
    group = {"group": kind.group} if kind.group else {}
    return {"name": name, **group, "kind": kind.plural}


def bad_request(message: str) -> RefusedError:
    """The request itself makes no sense."""
    return RefusedError(400, "BadRequest", message)


def not_supported(what: str, code: int = 400, reason: str = "BadRequest") -> RefusedError:
    """A real API server supports this, and the sandbox does not."""
    return RefusedError(code, reason, f"the sandbox does not support {what}; {ALTERNATIVE}")


def not_found(kind: Kind, name: str) -> RefusedError:
    """There is no such object."""
    return RefusedError(404, "NotFound", f'{kind.resource} "{name}" not found', details=named(kind, name))


def already_exists(kind: Kind, name: str) -> RefusedError:
    """There is one already."""
    message = f'{kind.resource} "{name}" already exists'
    return RefusedError(409, "AlreadyExists", message, details=named(kind, name))


def conflict(kind: Kind, name: str, why: str) -> RefusedError:
    """The object is not what the writer thinks it is."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return RefusedError(409, "Conflict", message, details=named(kind, name))


def forbidden(kind: Kind, name: str, why: str) -> RefusedError:
    """This must not be done now."""
    return RefusedError(403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', details=named(kind, name))


def invalid(kind: Kind, name: str, *causes: Cause) -> RefusedError:
    """The object breaks rules; each cause names one."""
    who = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    told = [f"{cause.field}: {cause.message}" for cause in causes]
    why = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    details = {**named(kind, name), "kind": kind.kind}
    return RefusedError(422, "Invalid", f'{who} "{name}" is invalid: {why}', details=details, causes=causes)


def unknown_fields(kind: Kind, fields: Sequence[str], *, patched: bool) -> RefusedError:
    """The object has fields that its kind has not. After a patch it is invalid: `kubectl edit` opens again then."""
    told = f"strict decoding error: {', '.join(fields)}"
    if not patched:
        return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {told}')
    cause = Cause("patch", f"Invalid value: {told}")
    return RefusedError(422, "Invalid", f' "" is invalid: {cause.field}: {cause.message}', causes=[cause])


def expired(asked: int, oldest: int) -> RefusedError:
    """The history that was asked for is gone."""
    return RefusedError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def nothing_here() -> RefusedError:
    """The path names no resource that is served."""
    # kubectl looks into the details whatever they are: `kubectl debug` dies where there are none
    return RefusedError(404, "NotFound", "the server could not find the requested resource", details={})


def not_allowed() -> RefusedError:
    """The resource is served, but not in this way."""
    message = "the server does not allow this method on the requested resource"
    return RefusedError(405, "MethodNotAllowed", message, details={})

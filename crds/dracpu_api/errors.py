"""The base of all errors, and what can go wrong between the API server and its client: as types, so that callers can
handle each, and with messages that a person can act on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class DriverError(Exception):
    """Base of all errors that operator and agent raise on purpose; the message is for people."""


class ApiError(DriverError):
    """The API server refused a request, or no answer came."""

    def __init__(self, message: str, *, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason  # a CamelCase word for conditions
        self.retry_after = retry_after  # seconds after which the server allows another attempt


class UnavailableError(ApiError):
    """No answer, or one that asks to try again later (429, 5xx). The request may or may not have been carried out."""


class NotServedError(UnavailableError):
    """404 that does not name the requested object. The API server does not serve the kind, or the answer comes from
    something else: a proxy or a load balancer answers so while its API servers are away."""


class NotFoundError(ApiError):
    """404 in which the API server names the requested object: it does not exist."""


class ConflictError(ApiError):
    """409: the object has changed, has another UID, or exists already."""


class ExpiredError(ApiError):
    """410: the history since the given resourceVersion, or the next page of a list, is gone; list again.

    A list may also go on with `continue_token`: the remaining pages then show a later state than the first ones."""

    continue_token = ""


class SilentError(ExpiredError):
    """A watch sends nothing any more, not even bookmarks: its connection is dead, or the API server was restored from a
    backup and has yet to reach the version from which the watch continues."""


class RefusedError(ApiError):
    """Another 4xx: repeating the request does not help until somebody changes permissions or the object."""


class ForbiddenError(RefusedError):
    """401 or 403: the credentials or permissions do not suffice."""


class InvalidError(RefusedError):
    """400 or 422: the API server does not accept the object."""


@dataclass(frozen=True, slots=True)
class Named:
    """The object that a request names."""

    plural: str
    name: str


def api_error(
    status: int, body: object, *, what: str, retry_after: float | None = None, named: Named | None = None
) -> ApiError:
    """The error for an HTTP status of 300 or more. `body` is the answer's decoded JSON, usually a Status object; `what`
    describes the request in the message."""
    fields = body if isinstance(body, Mapping) else {}
    reason = str(fields.get("reason") or f"Http{status}")
    detail = str(fields.get("message") or "no explanation was given")
    error = _type_of(status, detail)
    if error is NotFoundError and not _reports_missing(fields, named):
        error = NotServedError
    made = error(f"{what}: {reason}: {detail}", reason=reason, retry_after=retry_after)
    metadata = fields.get("metadata")
    if isinstance(made, ExpiredError) and isinstance(metadata, Mapping):
        made.continue_token = str(metadata.get("continue") or "")
    return made


def _reports_missing(status: Mapping[str, object], named: Named | None) -> bool:
    """Whether this is the API server's own report that an object does not exist, and not just any 404."""
    details = status.get("details")
    if not isinstance(details, Mapping) or named is None:
        return False
    head = (status.get("apiVersion"), status.get("kind"), status.get("reason"))
    return head == ("v1", "Status", "NotFound") and (details.get("kind"), details.get("name")) == (
        named.plural,
        named.name,
    )


def _type_of(status: int, detail: str) -> type[ApiError]:
    if detail.startswith(_NOT_IN_SCHEMA):
        return InvalidError
    if status >= 500:
        return UnavailableError
    return _BY_STATUS.get(status, RefusedError if status >= 400 else ApiError)


# server-side apply answers 500 for a field that the CRD does not have, or has with another type: retrying is useless
_NOT_IN_SCHEMA: Final = "failed to create typed patch object"

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
    429: UnavailableError,
}

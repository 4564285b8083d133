"""The errors that leave a room. Each message is for the person who reads it in the log, a status or an Event."""

from collections.abc import Mapping
from typing import Any, Final


class OperatorError(Exception):
    """Base of everything that the operator refuses or could not do."""


class AccessError(OperatorError):
    """Nothing tells how to reach the API server, or what tells it is wrong."""


class WatchError(OperatorError):
    """Nothing tells any more what changes: a new process has to look at everything anew."""


class ManifestError(OperatorError):
    """A file does not hold the object that it should."""


class HeldError(OperatorError):
    """Claims hold CPUs, and what was asked for would leave them alone with it."""


class ListenError(OperatorError):
    """The address for probes and metrics is not one, or cannot be listened on."""


class ApiError(OperatorError):
    """The API server refused a request or could not be asked."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  # 0: there was no answer


class NotFoundError(ApiError):
    """404: the object does not exist, or the API does not serve its kind."""


class ConflictError(ApiError):
    """409: the object is not what the request takes it for."""


class ExpiredError(ApiError):
    """410: a page of a list was asked for too late; list anew."""


class RefusedError(ApiError):
    """Another 4xx: repeating the request helps only when somebody grants or changes something."""


class UnavailableError(ApiError):
    """No answer, or one that says "later" (429, 5xx): whether the request was carried out is not known."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    429: UnavailableError,
}
# server-side apply answers 500 for a field that the CRD does not have, or of another type: no time will mend that
_NOT_IN_SCHEMA: Final = "failed to create typed patch object"


def api_error(status: int, body: Mapping[str, Any], *, what: str) -> ApiError:
    """The typed error for an answer; `body` is a Status object, or has at least its message."""
    detail = body.get("message") or body.get("reason") or "no explanation was given"
    if status < 500 or str(detail).startswith(_NOT_IN_SCHEMA):
        kind = _BY_STATUS.get(status, RefusedError)
    else:
        kind = UnavailableError
    return kind(f"{what}: {status} {detail}", status=status)

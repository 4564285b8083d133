"""What can go wrong between the agent and the API server, as types that callers can tell apart."""

from dracpu_agent.errors import DriverError


class ClusterConfigError(DriverError):
    """Nothing tells how to reach the API server, or what tells it is wrong or not supported."""


class ApiError(DriverError):
    """The API server refused a request or could not be asked; the message is fit for a status condition."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status  # 0: there was no answer
        self.reason = reason  # one CamelCase word, from the answer where there is one
        self.retry_after = retry_after  # seconds that the server asks to wait


class NotFoundError(ApiError):
    """404: the object does not exist, or the API does not serve its kind."""


class ConflictError(ApiError):
    """409: the object is not what the request takes it for (another version, another UID, exists already)."""


class GoneError(ApiError):
    """410: the resourceVersion is too old to watch from; list anew."""


class ForbiddenError(ApiError):
    """401 or 403: the agent's credentials or permissions do not suffice."""


class InvalidError(ApiError):
    """400 or 422: the object is refused; sending it again does not help."""


class UnavailableError(ApiError):
    """No answer, or one that says "later" (429, 5xx): the same request may succeed when repeated."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: UnavailableError,
}


def api_error(status: int, body: object, *, what: str, retry_after: float | None = None) -> ApiError:
    """The typed error for an answer. `body` is the answer's decoded JSON: usually a Status object."""
    fields = body if isinstance(body, dict) else {}
    reason = str(fields.get("reason") or f"Http{status}")
    detail = str(fields.get("message") or "no explanation was given")
    kind = _BY_STATUS.get(status, UnavailableError if status >= 500 else ApiError)
    return kind(f"{what}: {reason}: {detail}", status=status, reason=reason, retry_after=retry_after)

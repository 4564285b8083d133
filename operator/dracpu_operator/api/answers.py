"""Reads the API server's answers: objects, events of a watch, and refusals as typed errors. No I/O."""

import json
from typing import Final

from dracpu_api.errors import UnavailableError, api_error
from dracpu_api.resources import Json

_QUOTED: Final = 200  # bytes of an answer that is not a Status object; a proxy's may be a whole page


def read_object(payload: bytes, what: str) -> Json:
    """The JSON object in an answer; `what` names the request in errors."""
    answer = _decoded(payload)
    if not isinstance(answer, dict):
        raise UnavailableError(f"{what}: the answer is not a JSON object")
    return answer


def read_event(line: bytes, what: str) -> Json:
    """One event of a watch; raises what an event of type ERROR reports."""
    event = _decoded(line)
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise UnavailableError(f"{what}: the answer is not an event")
    if event["type"] == "ERROR":
        raise api_error(event["object"].get("code", 500), event["object"], what=what)
    return event


def check(status: int, payload: bytes, what: str) -> None:
    """Raises the typed error for an answer with an HTTP status of 400 or more."""
    if status < 400:
        return
    answer = _decoded(payload)
    # a path that is not served is answered in plain text
    body = answer if isinstance(answer, dict) else {"message": payload[:_QUOTED].decode(errors="replace").strip()}
    raise api_error(status, body, what=what)


def _decoded(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError:
        return None

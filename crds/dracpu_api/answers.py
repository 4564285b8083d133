"""Reads the API server's answers: objects, events of a watch, and refusals as typed errors. No I/O.

`what` names the request in the messages of errors.
"""

import json
from typing import Final, Literal, NamedTuple

from dracpu_api.errors import ApiError, Named, UnavailableError, api_error
from dracpu_api.resources import JsonObject, Resource

NOT_UNDERSTOOD: Final = "NotUnderstood"  # the reason of errors about answers that make no sense

_QUOTED: Final = 200  # bytes of a plain text that are quoted


class WatchEvent(NamedTuple):
    """One line of a watch. The object of a bookmark has nothing but a resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: JsonObject


def read_object(payload: bytes, what: str) -> JsonObject:
    """The JSON object in an answer."""
    answer = _decoded(payload)
    if not isinstance(answer, dict):
        raise UnavailableError(f"{what}: the answer is not a JSON object", reason=NOT_UNDERSTOOD)
    return answer


def read_event(line: bytes, what: str) -> WatchEvent:
    """An event of a watch. Raises the error that an event of type ERROR reports."""
    event = read_object(line, what)
    kind, subject = event.get("type"), event.get("object")
    if kind == "ERROR" and isinstance(subject, dict):
        raise api_error(int(subject.get("code") or 500), subject, what=what)
    if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK") or not isinstance(subject, dict):
        raise UnavailableError(f"{what}: not an event of a watch: type {kind!r}", reason=NOT_UNDERSTOOD)
    return WatchEvent(kind, subject)


def read_stored(payload: bytes, what: str, resource: Resource, name: str) -> JsonObject:
    """The stored object of that kind, or its metadata alone; `name` is empty when the API server chose the name. A
    proxy that answers with JSON of its own must not be taken for the API server."""
    answer = read_object(payload, what)
    metadata = answer.get("metadata")
    if (
        answer.get("kind") not in (resource.kind, "PartialObjectMetadata")
        or not isinstance(metadata, dict)
        or metadata.get("name") != (name or metadata.get("name"))
        or not all(isinstance(metadata.get(field), str) for field in ("name", "uid", "resourceVersion"))
    ):
        raise UnavailableError(f"{what}: the answer is not the {resource.kind}", reason=NOT_UNDERSTOOD)
    return answer


def read_list(payload: bytes, what: str, resource: Resource) -> JsonObject:
    """The list of objects of that kind, or of their metadata alone. Another answer must not be taken for an empty
    list: what is not in a list counts as deleted."""
    answer = read_object(payload, what)
    metadata, items = answer.get("metadata"), answer.get("items", "missing")
    if (
        answer.get("kind") not in (f"{resource.kind}List", "PartialObjectMetadataList")
        or not isinstance(items, list | None)  # null is an empty list
        or not isinstance(metadata, dict)
        or not isinstance(metadata.get("resourceVersion"), str)
    ):
        raise UnavailableError(f"{what}: the answer is not a {resource.kind}List", reason=NOT_UNDERSTOOD)
    return answer


def refusal(status: int, payload: bytes, what: str, *, retry_after: str = "", named: Named | None = None) -> ApiError:
    """The error for an answer with an HTTP status of 300 or more; `retry_after` is the header of that name, `named` the
    object that the request is about."""
    body = _decoded(payload)
    if not isinstance(body, dict):
        body = {"message": _plain(payload)}
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdecimal() else None
    return api_error(status, body, what=what, retry_after=seconds, named=named)


def _plain(payload: bytes) -> str:
    """A plain text, as the API server answers about a path that it does not serve; "" for the page of a proxy."""
    text = payload[:_QUOTED].decode(errors="replace").strip()
    return "" if text.startswith("<") else text


def _decoded(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError:
        return None

"""Encodes objects for answers: whole, as metadata alone, or as a table. Tables alone are encoded for each request."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.kinds.tables import Include, partial, table
from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.apiserver.store import JsonObject, Stored

View = Literal["Object", "PartialObjectMetadata", "Table"]

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_JSON_TYPES: Final = {"application/json", "application/*", "*/*"}
_VIEWS: Final[dict[str, View]] = {
    "": "Object",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadata",
    "Table": "Table",
}


def encoded(body: Any) -> bytes:
    """Encodes as compact JSON."""
    return _encode(body).encode()


def requested_view(accept: str) -> View:
    """Returns the first view in an Accept header that is supported; raises RefusedError when none is."""
    for entry in accept.split(",") if accept.strip() else ["*/*"]:
        media, *rest = (part.strip() for part in entry.split(";"))
        options = dict(part.split("=", 1) for part in rest if "=" in part)
        view = _VIEWS.get(options.get("as", ""))
        if media in _JSON_TYPES and view is not None and options.get("v", "v1") == "v1":
            return view
    message = "only the following media types are accepted: application/json"
    raise RefusedError(406, "NotAcceptable", message)


@dataclass(frozen=True, slots=True)
class Rendering:
    """Encodes objects of a kind in the form that a client requests."""

    kind: Kind
    view: View = "Object"
    include: Include = "Metadata"  # the part of the object in a row of a table

    def single(self, stored: Stored) -> bytes:
        """Encodes one object."""
        if self.view == "Table":
            return encoded(self._shown(stored))  # a table shows ages, which change
        form = (self.kind.api_version, self.view)
        known = stored.forms.get(form)
        if known is None:
            known = stored.forms[form] = encoded(self._shown(stored))
        return known

    def list(self, stored: Sequence[Stored], metadata: JsonObject) -> bytes:
        """Encodes a list."""
        if self.view == "Table":
            return encoded(
                table(self.kind, [self.kind.from_stored(item.object) for item in stored], metadata, self.include)
            )
        if self.view == "PartialObjectMetadata":
            head: JsonObject = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        else:
            head = {"kind": self.kind.list_kind or f"{self.kind.kind}List", "apiVersion": self.kind.api_version}
        opening = encoded({**head, "metadata": metadata})[:-1]
        return opening + b',"items":[' + b",".join(self.single(item) for item in stored) + b"]}"

    def event(self, happened: str, stored: Stored) -> bytes:
        """Encodes an event of a watch."""
        return b'{"type":"' + happened.encode() + b'","object":' + self.single(stored) + b"}\n"

    def bookmark(self, revision: int, *, initial_events_end: bool = False) -> bytes:
        """Encodes an event with the revision up to which the watch has sent all changes."""
        metadata: JsonObject = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_events_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        head: JsonObject = {"kind": self.kind.kind, "apiVersion": self.kind.api_version}
        if self.view == "PartialObjectMetadata":
            head = {"kind": self.view, "apiVersion": "meta.k8s.io/v1"}
        return encoded({"type": "BOOKMARK", "object": {**head, "metadata": metadata}}) + b"\n"

    def _shown(self, stored: Stored) -> JsonObject:
        whole = self.kind.from_stored(stored.object)
        if self.view == "Table":
            version = whole["metadata"].get("resourceVersion", "")
            return table(self.kind, [whole], {"resourceVersion": version}, self.include)
        return partial(whole) if self.view == "PartialObjectMetadata" else whole

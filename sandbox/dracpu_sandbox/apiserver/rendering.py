"""How objects are shown: whole, as metadata alone, or as a table; each is encoded once for all who ask."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.kinds.tables import partial, table
from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.apiserver.store import JsonObject, Stored

View = Literal["Object", "PartialObjectMetadata", "Table"]
Include = Literal["Metadata", "Object", "None"]

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_JSON_TYPES: Final = {"application/json", "application/*", "*/*"}
_VIEWS: Final[dict[str, View]] = {
    "": "Object",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadata",
    "Table": "Table",
}


def encoded(body: Any) -> bytes:
    """JSON, as short as it can be."""
    return _encode(body).encode()


def wanted_view(accept: str) -> View:
    """The first view in an Accept header that can be shown; raises RefusedError when none can."""
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
    """How one who asks wants to see objects of a kind."""

    kind: Kind
    view: View = "Object"
    include: Include = "Metadata"  # what of the object stands in a table's row

    def one(self, stored: Stored) -> bytes:
        """One object, encoded."""
        if self.view == "Table":
            return encoded(self._shown(stored))  # ages in it: never the same again
        form = (self.kind.api_version, self.view)
        known = stored.forms.get(form)
        if known is None:
            known = stored.forms[form] = encoded(self._shown(stored))
        return known

    def list(self, stored: Sequence[Stored], metadata: JsonObject) -> bytes:
        """A list, encoded."""
        if self.view == "Table":
            return encoded(table(self.kind, [self.whole(one) for one in stored], metadata, self.include))
        if self.view == "PartialObjectMetadata":
            head: JsonObject = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        else:
            head = {"kind": self.kind.list_kind or f"{self.kind.kind}List", "apiVersion": self.kind.api_version}
        opening = encoded({**head, "metadata": metadata})[:-1]
        return opening + b',"items":[' + b",".join(self.one(one) for one in stored) + b"]}"

    def event(self, happened: str, stored: Stored, *, first: bool) -> bytes:
        """An event of a watch, encoded; only its first table names the columns."""
        again = self.view == "Table" and not first
        shown = encoded({**self._shown(stored), "columnDefinitions": []}) if again else self.one(stored)
        return b'{"type":"' + happened.encode() + b'","object":' + shown + b"}\n"

    def bookmark(self, revision: int, *, initial_events_end: bool = False) -> bytes:
        """An event that says up to where a watch has seen everything."""
        metadata: JsonObject = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_events_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        head: JsonObject = {"kind": self.kind.kind, "apiVersion": self.kind.api_version}
        if self.view == "PartialObjectMetadata":
            head = {"kind": self.view, "apiVersion": "meta.k8s.io/v1"}
        if self.view == "Table":
            head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": None, "rows": None}
        return encoded({"type": "BOOKMARK", "object": {**head, "metadata": metadata}}) + b"\n"

    def whole(self, stored: Stored) -> JsonObject:
        """The object as this kind shows it."""
        shown = self.kind.from_stored(stored.object)
        if shown["apiVersion"] != self.kind.api_version:
            return {**shown, "apiVersion": self.kind.api_version}
        return shown

    def _shown(self, stored: Stored) -> JsonObject:
        whole = self.whole(stored)
        if self.view == "Table":
            version = whole["metadata"].get("resourceVersion", "")
            return table(self.kind, [whole], {"resourceVersion": version}, self.include)
        return partial(whole) if self.view == "PartialObjectMetadata" else whole

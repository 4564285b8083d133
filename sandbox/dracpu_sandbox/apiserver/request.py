"""A request for objects: its path, query and body, parsed once."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.refusal import RefusedError, bad_request, not_supported

JsonObject = dict[str, Any]
PatchKind = Literal["merge", "json", "strategic", "apply"]

_PATCHES: Final[Mapping[str, PatchKind]] = {
    "application/merge-patch+json": "merge",
    "application/json-patch+json": "json",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_LONGEST_MANAGER: Final = 128
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_NO_PROTOBUF: Final = (
    "request bodies in protobuf (print the object with `--dry-run=client -o yaml` and pipe it to `kubectl apply -f -`)"
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request for objects."""

    method: str
    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def watches(self) -> bool:
        """Returns whether the request is a watch, which is a GET request as well."""
        return self.method == "GET" and not self.name and self.flag("watch")

    @property
    def verb(self) -> str:
        """Returns the verb, as roles and discovery name it."""
        match self.method:
            case "GET":
                return "get" if self.name else "watch" if self.watches else "list"
            case "DELETE":
                return "delete" if self.name else "deletecollection"
            case method:
                return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, method.lower())

    @property
    def patch_kind(self) -> PatchKind:
        """Returns the format of the patch in the body; raises RefusedError when it is unknown."""
        media = self.headers.get("Content-Type", "").partition(";")[0].strip()
        if media not in _PATCHES:
            raise unknown_format(_PATCHES)
        return _PATCHES[media]

    @property
    def manager(self) -> str:
        """Returns the field manager in the query, or else the name of the client's program."""
        program = self.headers.get("User-Agent", "").partition("/")[0]
        return (self.query.get("fieldManager") or program)[:_LONGEST_MANAGER] or "unknown"

    def number(self, name: str, default: int = 0) -> int:
        """Reads a number from the query."""
        try:
            return int(self.query.get(name) or default)
        except ValueError:
            raise bad_request(f"{name} must be a number, not {self.query[name]!r}") from None

    def flag(self, name: str) -> bool:
        """Reads a truth value from the query."""
        return self.query.get(name, "").lower() in {"true", "1"}

    def __str__(self) -> str:
        verb = "WATCH" if self.watches else self.method
        return " ".join([verb, "/".join(part for part in (self.plural, self.name, self.subresource) if part)])


def read_request(method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Request | None:
    """Parses a request without its body; returns None when the path does not address objects."""
    match path.strip("/").split("/"):
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or not all(rest):
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return Request(method, group, version, plural, namespace, name, subresource, query, headers)


def unknown_format(accepted: Iterable[str]) -> RefusedError:
    """Returns the error for a patch in an unknown format."""
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return RefusedError(415, "UnsupportedMediaType", message)


def read_body(payload: bytes, content_type: str) -> Any:
    """Parses the body as JSON; returns None when it is empty. Raises RefusedError."""
    if not payload:
        return None
    if content_type == _PROTOBUF:
        raise not_supported(_NO_PROTOBUF, 415, "UnsupportedMediaType")
    try:
        return json.loads(payload)
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from error

"""Objects as some commands of kubectl send them: `create namespace` and its like, `auth can-i`, `drain`.

These commands speak protobuf and nothing else. The numbers of the fields are those of Kubernetes' own messages; only
what such a command sends is known here, and everything else is refused by name.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.refusal import RefusedError, bad_request

JsonObject = dict[str, Any]
_Sort = Literal["text", "bytes", "number", "flag", "time", "message"]

_MAGIC: Final = b"k8s\x00"
_VARINT: Final = 0
_LENGTH: Final = 2
_SKIPPED: Final = {1: 8, 5: 4}  # numbers of fixed length, which no field here is


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    sort: _Sort = "text"
    fields: "Mapping[int, _Field] | None" = None  # of a message
    many: bool = False
    by_key: bool = False  # a map; `sort` is that of its values


def _texts(*names: str) -> dict[int, _Field]:
    """Consecutive fields of text; an empty name skips a number."""
    return {number: _Field(name) for number, name in enumerate(names, start=1) if name}


_NUMBERS: Final = {"flag", "number"}
_TIME: Final = {1: _Field("seconds", "number")}
_OWNER: Final = {
    1: _Field("kind"),
    3: _Field("name"),
    4: _Field("uid"),
    5: _Field("apiVersion"),
    6: _Field("controller", "flag"),
    7: _Field("blockOwnerDeletion", "flag"),
}
_METADATA: Final = {
    **_texts("name", "generateName", "namespace", "", "uid", "resourceVersion"),
    8: _Field("creationTimestamp", "time"),
    11: _Field("labels", by_key=True),
    12: _Field("annotations", by_key=True),
    13: _Field("ownerReferences", "message", _OWNER, many=True),
    14: _Field("finalizers", many=True),
}
_IDENTITY: Final = {1: _Field("metadata", "message", _METADATA)}
_RULE: Final = {
    number: _Field(name, many=True)
    for number, name in enumerate(("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), start=1)
}
_REFERENCE: Final = _texts("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_ROLE: Final = {**_IDENTITY, 2: _Field("rules", "message", _RULE, many=True)}
_BINDING: Final = {
    **_IDENTITY,
    2: _Field("subjects", "message", _texts("kind", "apiGroup", "name", "namespace"), many=True),
    3: _Field("roleRef", "message", _texts("apiGroup", "kind", "name")),
}
_ACCESS: Final = {
    1: _Field(
        "resourceAttributes",
        "message",
        _texts("namespace", "verb", "group", "version", "resource", "subresource", "name"),
    ),
    2: _Field("nonResourceAttributes", "message", _texts("path", "verb")),
}
_KNOWN: Final[Mapping[str, Mapping[int, _Field]]] = {
    "Namespace": {**_IDENTITY, 2: _Field("spec", "message", {1: _Field("finalizers", many=True)})},
    "ConfigMap": {
        **_IDENTITY,
        2: _Field("data", by_key=True),
        3: _Field("binaryData", "bytes", by_key=True),
        4: _Field("immutable", "flag"),
    },
    "Secret": {
        **_IDENTITY,
        2: _Field("data", "bytes", by_key=True),
        3: _Field("type"),
        4: _Field("stringData", by_key=True),
        5: _Field("immutable", "flag"),
    },
    "ServiceAccount": {
        **_IDENTITY,
        2: _Field("secrets", "message", _REFERENCE, many=True),
        3: _Field("imagePullSecrets", "message", _texts("name"), many=True),
        4: _Field("automountServiceAccountToken", "flag"),
    },
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "SelfSubjectReview": _IDENTITY,
    "SelfSubjectRulesReview": {**_IDENTITY, 2: _Field("spec", "message", _texts("namespace"))},
    "SelfSubjectAccessReview": {**_IDENTITY, 2: _Field("spec", "message", _ACCESS)},
    "DeleteOptions": {
        1: _Field("gracePeriodSeconds", "number"),
        2: _Field("preconditions", "message", _texts("uid", "resourceVersion")),
        4: _Field("propagationPolicy"),
        5: _Field("dryRun", many=True),
    },
}


def decode(payload: bytes) -> JsonObject:
    """The object; raises RefusedError when it cannot be read."""
    if not payload.startswith(_MAGIC):
        raise bad_request("the body is no protobuf of Kubernetes")
    try:
        envelope = dict(_raw_fields(payload[len(_MAGIC) :]))
        identity = _message(envelope[1], _texts("apiVersion", "kind"))
        if identity["kind"] not in _KNOWN:
            told = f"this server does not read {identity['kind']} in protobuf; send it as JSON, as `kubectl apply` does"
            raise RefusedError(415, "UnsupportedMediaType", told)
        return {**identity, **_message(envelope.get(2, b""), _KNOWN[identity["kind"]])}
    except (KeyError, IndexError, ValueError, OverflowError, OSError) as error:  # the last two: no such time
        raise bad_request(f"the body is no protobuf of Kubernetes: {error!r}") from error


def _message(payload: bytes, fields: Mapping[int, _Field]) -> JsonObject:
    """Fields that are unknown are left out, and so are those that say nothing."""
    found: JsonObject = {}
    for number, raw in _raw_fields(payload):
        field = fields.get(number)
        if field is None:
            continue
        if isinstance(raw, int) is not (field.sort in _NUMBERS and not field.by_key):
            raise ValueError(f"field {number} is of another type")
        if field.by_key:
            key, value = _entry(raw, field)
            found.setdefault(field.name, {})[key] = value
        elif field.many:
            found.setdefault(field.name, []).append(_value(raw, field))
        elif (value := _value(raw, field)) not in ("", None):
            found[field.name] = value
    return found


def _entry(raw: Any, field: _Field) -> tuple[str, Any]:
    entry = _message(raw, {1: _Field("key"), 2: _Field("value", field.sort)})
    return entry.get("key", ""), entry.get("value", "")


def _value(raw: Any, field: _Field) -> Any:
    match field.sort:
        case "text":
            return raw.decode()
        case "bytes":
            return base64.b64encode(raw).decode()
        case "flag":
            return bool(raw)
        case "number":
            return raw
        case "time":
            seconds = _message(raw, _TIME).get("seconds")
            return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case "message":
            return _message(raw, field.fields or {})


def _raw_fields(payload: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and what stands there: an int, or bytes."""
    if not isinstance(payload, bytes):
        raise ValueError("a message is expected, not a number")  # noqa: TRY004 - it is what was sent that is wrong
    place = 0
    while place < len(payload):
        tag, place = _varint(payload, place)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, place = _varint(payload, place)
            yield number, value
        elif wire == _LENGTH:
            length, place = _varint(payload, place)
            if place + length > len(payload):
                raise IndexError("a field ends behind the message")
            yield number, payload[place : place + length]
            place += length
        elif wire in _SKIPPED:
            place += _SKIPPED[wire]
        else:
            raise KeyError(f"wire type {wire}")


def _varint(payload: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = payload[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return value, place

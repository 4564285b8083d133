"""Label and field selectors: texts like `app=web,tier in (a,b)` and `spec.nodeName=n1`."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.refusal import bad_request, not_supported

JsonObject = dict[str, Any]
Predicate = Callable[[JsonObject], bool]

_NAMES: Final = ("metadata.name", "metadata.namespace")
_SELECTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": ("spec.nodeName", "status.phase"),
    "events": (
        "involvedObject.apiVersion",
        "involvedObject.fieldPath",
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
    ),
    "resourceslices.resource.k8s.io": ("spec.driver", "spec.nodeName", "spec.pool.name"),
}
_COMMA: Final = re.compile(r",(?![^(]*\))")  # a comma that is not in parentheses
_WORD: Final = r"[-A-Za-z0-9_./]"
_LABEL: Final = re.compile(
    rf"!\s*(?P<absent>{_WORD}+)"
    rf"|(?P<key>{_WORD}+)(?:\s*(?P<operator>==?|!=)\s*(?P<value>{_WORD}*)|\s+(?P<set>in|notin)\s*\((?P<values>[^()]+)\))?"
)
_FIELD: Final = re.compile(rf"(?P<path>{_WORD}+)(?P<operator>==?|!=)(?P<value>[^=]*)")


def everything(stored: JsonObject) -> bool:
    """Selects all objects."""
    return True


def selects(kind: Kind, labels: str, fields: str) -> Predicate:
    """Returns a test of stored objects; raises RefusedError for a malformed selector or an unknown field."""
    by_label = [_label_test(term.strip()) for term in _COMMA.split(labels) if labels.strip()]
    by_field = [_field_test(kind, *term) for term in _terms(fields)]
    if not by_label and not by_field:
        return everything

    def selected(stored: JsonObject) -> bool:
        own = stored["metadata"].get("labels") or {}
        return all(test(stored) for test in by_field) and all(test(own) for test in by_label)

    return selected


def selected_name(fields: str) -> str:
    """Returns the name when a field selector selects an object by its name, else an empty text."""
    return next((value for path, value, equal in _terms(fields) if path == "metadata.name" and equal), "")


def _label_test(term: str) -> Callable[[Mapping[str, str]], bool]:
    found = _LABEL.fullmatch(term)
    if found is None:
        raise bad_request(f"{term!r} is not a label selector: write key, !key, key=value, key!=value or key in (a,b)")
    key, absent = found["key"], found["absent"]
    if absent:
        return lambda labels: absent not in labels
    if found["set"]:
        values, inside = [value.strip() for value in found["values"].split(",")], found["set"] == "in"
        return lambda labels: (labels.get(key) in values) is inside
    if found["operator"]:
        value, equal = found["value"], found["operator"] != "!="
        return lambda labels: (labels.get(key) == value) is equal
    return lambda labels: key in labels


def _terms(fields: str) -> list[tuple[str, str, bool]]:
    """Splits a field selector into path, value, and whether they have to be equal."""
    terms = []
    for term in fields.split(",") if fields else ():
        found = _FIELD.fullmatch(term.strip())
        if found is None:
            raise bad_request(f"{term!r} is not a field selector: write path=value or path!=value")
        terms.append((found["path"], found["value"], found["operator"] != "!="))
    return terms


def _field_test(kind: Kind, path: str, value: str, equal: bool) -> Predicate:
    known = (*(_NAMES if kind.namespaced else _NAMES[:1]), *_SELECTABLE.get(kind.storage, ()))
    if path not in known:
        raise not_supported(f"the field selector {path!r} for {kind.plural} (use {', '.join(known)})")
    names = path.split(".")
    return lambda stored: (_text(stored, names) == value) is equal


def _text(value: Any, names: list[str]) -> str:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)

"""Label and field selectors: texts like `app=web,tier in (a,b)` and `spec.nodeName=n1`."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.labelselectors import label_tests
from dracpu_sandbox.apiserver.refusal import bad_request

JsonObject = dict[str, Any]
Predicate = Callable[[JsonObject], bool]

_ALWAYS: Final = ("metadata.name", "metadata.namespace")
_SELECTABLE: Final[Mapping[str, tuple[str, ...]]] = {  # of built-in kinds; custom ones have metadata alone
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "events": (
        *(
            f"involvedObject.{name}"
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        ),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "resourceslices.resource.k8s.io": ("spec.nodeName", "spec.driver"),
}
_TRUTHS: Final = ("spec.hostNetwork", "spec.unschedulable")  # false where an object says nothing
_RENAMED: Final[Mapping[str, str]] = {  # what events.k8s.io calls differently
    "reportingController": "reportingComponent",
    **{
        f"regarding.{name}": f"involvedObject.{name}"
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
}
_FIELD: Final = re.compile(r"(?P<path>[^=!]*?)(?P<operator>==|=|!=)(?P<value>.*)", re.DOTALL)
_TERM: Final = re.compile(r"(?:\\.|[^,\\])+", re.DOTALL)  # commas are escaped with a backslash in values


def everything(one: JsonObject) -> bool:
    """The predicate of no selector."""
    return True


def selects(kind: Kind, labels: str, fields: str) -> Predicate:
    """Whether an object, as it is stored, is selected; raises RefusedError for what is no selector."""
    by_labels = label_tests(labels)
    by_fields = [_field_test(kind, *term) for term in _terms(fields)]
    if not by_labels and not by_fields:
        return everything

    def chosen(one: JsonObject) -> bool:
        own = one["metadata"].get("labels") or {}
        return all(test(one) for test in by_fields) and all(test(own) for test in by_labels)

    return chosen


def selected_name(fields: str) -> str:
    """The one name that a field selector leaves; empty: it may leave several."""
    return next((value for path, value, equal in _terms(fields) if path == "metadata.name" and equal), "")


def _terms(fields: str) -> list[tuple[str, str, bool]]:
    """Path, value, and whether they shall be equal."""
    terms = []
    for part in _TERM.findall(fields):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid selector: '{fields}'; can't understand '{part}'")
        if re.search(r"(?<!\\)=", match["value"]):
            raise bad_request(f"invalid field selector: unescaped character in value: {ord('=')}")
        terms.append((match["path"], re.sub(r"\\(.)", r"\1", match["value"]), match["operator"] != "!="))
    return terms


def _field_test(kind: Kind, said: str, value: str, equal: bool) -> Predicate:
    path = _RENAMED.get(said, said)
    if path not in _selectable(kind):
        raise bad_request(_not_selectable(kind, said))
    if path == "source":
        path = "source.component"
    names = path.split(".")
    otherwise = "false" if path in _TRUTHS else ""
    return lambda one: (_text(one, names, otherwise) == value) is equal


def _selectable(kind: Kind) -> tuple[str, ...]:
    own = _SELECTABLE.get(kind.storage)
    if own is None and not kind.is_custom:
        return _ALWAYS  # of objects without a namespace, too
    return (*(_ALWAYS if kind.namespaced else _ALWAYS[:1]), *(own or ()))


def _not_selectable(kind: Kind, path: str) -> str:
    if kind.kind == "ResourceSlice":
        return f"field label not supported for {kind.api_version}, Kind={kind.kind}: {path}"
    if kind.is_custom or kind.storage in _SELECTABLE:
        return f"field label not supported: {path}"
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _text(one: Any, names: list[str], otherwise: str) -> str:
    for name in names:
        one = one.get(name) if isinstance(one, dict) else None
    if isinstance(one, bool):
        return "true" if one else "false"
    return otherwise if one is None else str(one)

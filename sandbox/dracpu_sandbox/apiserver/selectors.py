"""Label and field selectors: texts like `app=web,tier in (a,b)` and `spec.nodeName=n1`."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.refusal import RefusedError

JsonObject = dict[str, Any]
Predicate = Callable[[JsonObject], bool]
_LabelTest = Callable[[Mapping[str, str]], bool]

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
_FIELD = re.compile(r"(?P<path>[^=!]+?)(?P<operator>==|=|!=)(?P<value>.*)")
_LABEL_PARTS = re.compile(r"""[^,(]+(?:\([^)]*\))?""")
_LABEL = re.compile(
    r"""\s*(?P<not>!?)\s*(?P<key>[^\s=!,()]+)\s*
    (?:(?P<operator>==|=|!=)\s*(?P<value>[^\s,()=!]*)|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?\s*""",
    re.VERBOSE,
)


def everything(one: JsonObject) -> bool:
    """The predicate of no selector."""
    return True


def selects(kind: Kind, labels: str, fields: str) -> Predicate:
    """Whether an object, as it is stored, is selected; raises RefusedError for what is no selector."""
    label_tests = [_label_test(part) for part in _LABEL_PARTS.findall(labels)] if labels.strip() else []
    field_tests = [_field_test(kind, part) for part in fields.split(",") if part]
    if not label_tests and not field_tests:
        return everything

    def chosen(one: JsonObject) -> bool:
        own = one["metadata"].get("labels") or {}
        return all(test(one) for test in field_tests) and all(test(own) for test in label_tests)

    return chosen


def selected_name(fields: str) -> str:
    """The one name that a field selector leaves; empty: it may leave several."""
    for part in fields.split(","):
        match = _FIELD.fullmatch(part)
        if match and match["path"] == "metadata.name" and match["operator"] != "!=":
            return match["value"]
    return ""


def _field_test(kind: Kind, part: str) -> Predicate:
    match = _FIELD.fullmatch(part)
    if match is None:
        raise _bad(f'invalid field selector: "{part}"; can\'t understand "{part}"')
    path = _RENAMED.get(match["path"], match["path"])
    if path not in _ALWAYS and path not in _SELECTABLE.get(kind.storage, ()):
        raise _bad(f"field label not supported: {match['path']}")
    if path == "source":
        path = "source.component"
    names, value, equal = path.split("."), match["value"], match["operator"] != "!="
    otherwise = "false" if path in _TRUTHS else ""
    return lambda one: (_text(one, names, otherwise) == value) is equal


def _text(one: Any, names: list[str], otherwise: str) -> str:
    for name in names:
        one = one.get(name) if isinstance(one, dict) else None
    if isinstance(one, bool):
        return "true" if one else "false"
    return otherwise if one is None else str(one)


def _label_test(part: str) -> _LabelTest:
    match = _LABEL.fullmatch(part)
    if match is None or (match["not"] and (match["operator"] or match["set"])):
        raise _bad(f"unable to parse requirement: found '{part.strip()}', expected: a label's name, =, !=, in or notin")
    key = match["key"]
    if match["operator"]:
        value, equal = match["value"], match["operator"] != "!="
        return lambda labels: (labels.get(key) == value) is equal
    if match["set"]:
        values, inside = {value.strip() for value in match["values"].split(",")}, match["set"] == "in"
        return lambda labels: (labels.get(key) in values) is inside
    wanted = not match["not"]
    return lambda labels: (key in labels) is wanted


def _bad(message: str) -> RefusedError:
    return RefusedError(400, "BadRequest", message)

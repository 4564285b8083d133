"""The metadata of all objects."""

from collections.abc import Iterator
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import names

_ANNOTATIONS_LIMIT: Final = 256 * 2**10
_LONGEST_LABEL: Final = 63
_LONGEST_NAME: Final = 253


def check(kind: Kind, item: JsonObject) -> Iterator[Problem]:
    """What is wrong with an object's metadata."""
    metadata: JsonObject = item.get("metadata") or {}
    yield from _name(kind, metadata)
    yield from check_labels("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from names.qualified("metadata.annotations", key.lower())
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        yield problems.too_long("metadata.annotations", _ANNOTATIONS_LIMIT)
    for owner in metadata.get("ownerReferences") or ():
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                detail = "version must not be empty" if name == "apiVersion" else "must not be empty"
                yield problems.invalid(f"metadata.ownerReferences.{name}", "", detail)  # which one is not told
    for finalizer in metadata.get("finalizers") or ():
        yield from names.qualified("metadata.finalizers", finalizer)


def check_labels(field: str, labels: Any) -> Iterator[Problem]:
    """What is wrong with labels."""
    for key, value in (labels or {}).items():
        yield from names.qualified(field, key)
        yield from names.label_value(field, value)


def _name(kind: Kind, metadata: JsonObject) -> Iterator[Problem]:
    name = metadata.get("name")
    if not name:
        if not metadata.get("generateName"):
            yield problems.required("metadata.name", "name or generateName is required")
    elif kind.kind == "Namespace" and not kind.is_custom:
        if "." in name:
            yield problems.invalid("metadata.name", name, "must not contain dots")
        elif len(name) > _LONGEST_LABEL:
            yield problems.invalid("metadata.name", name, f"must be no more than {_LONGEST_LABEL} characters")
        else:
            yield from names.label("metadata.name", name)
    elif len(name) > _LONGEST_NAME:
        yield problems.invalid("metadata.name", name, f"must be no more than {_LONGEST_NAME} characters")
    else:
        yield from names.subdomain("metadata.name", name)
    if kind.namespaced and metadata.get("namespace"):
        yield from names.label("metadata.namespace", metadata["namespace"])

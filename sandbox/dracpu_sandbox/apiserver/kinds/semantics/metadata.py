"""The metadata of all objects."""

import re
from collections.abc import Iterator
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import names

_ANNOTATIONS_LIMIT: Final = 256 * 2**10
_PATH_SEGMENT_KINDS: Final = frozenset({"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})


def check(kind: Kind, item: JsonObject) -> Iterator[Problem]:
    """What is wrong with an object's metadata."""
    metadata: JsonObject = item.get("metadata") or {}
    if "get" in kind.verbs:  # what is only answered needs no name
        yield from _name(kind, metadata)
    yield from check_labels("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from names.qualified("metadata.annotations", key.lower())
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        yield problems.too_long("metadata.annotations", _ANNOTATIONS_LIMIT)
    for number, owner in enumerate(metadata.get("ownerReferences") or ()):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                path = f"metadata.ownerReferences[{number}].{name}"
                yield problems.invalid(path, "", f"{name if name != 'apiVersion' else 'version'} must not be empty")
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
    elif kind.kind in _PATH_SEGMENT_KINDS and not kind.is_custom:
        if re.search(r"[/%]", name) or name in {".", ".."}:
            yield problems.invalid("metadata.name", name, "may not contain '/' or '%'")
    elif kind.kind == "Namespace" and not kind.is_custom:
        if "." in name:
            yield problems.invalid("metadata.name", name, "must not contain dots")
        else:
            yield from names.label("metadata.name", name)
    else:
        yield from names.subdomain("metadata.name", name)
    if kind.namespaced and metadata.get("namespace"):
        yield from names.label("metadata.namespace", metadata["namespace"])

"""Rules for the metadata of all objects."""

from collections.abc import Iterator, Mapping
from typing import Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.kind import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import names

_ANNOTATIONS_LIMIT: Final = 256 * 2**10


def check(kind: Kind, item: JsonObject) -> Iterator[Problem]:
    """Yields the problems of an object's metadata."""
    metadata: JsonObject = item.get("metadata") or {}
    name = metadata.get("name")
    if name:
        yield from (names.label if kind.resource == "namespaces" else names.subdomain)("metadata.name", name)
    elif not metadata.get("generateName"):
        yield problems.required("metadata.name", "name or generateName is required")
    if metadata.get("namespace"):
        yield from names.label("metadata.namespace", metadata["namespace"])
    yield from check_labels("metadata.labels", metadata.get("labels"))
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    for key in annotations:
        yield from names.qualified("metadata.annotations", key)
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        yield problems.too_long("metadata.annotations", _ANNOTATIONS_LIMIT)
    for finalizer in metadata.get("finalizers") or ():
        yield from names.qualified("metadata.finalizers", finalizer)


def check_labels(field: str, labels: Mapping[str, str] | None) -> Iterator[Problem]:
    """Yields the problems of labels."""
    for key, value in (labels or {}).items():
        yield from names.qualified(field, key)
        yield from names.label_value(field, value)

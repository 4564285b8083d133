"""Admission: completes the objects that clients send, and refuses invalid objects with a list of their problems."""

from typing import Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.checking import check
from dracpu_sandbox.apiserver.kinds.gates import ON_BY_DEFAULT, Gates
from dracpu_sandbox.apiserver.kinds.kind import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.normalizing import normalize
from dracpu_sandbox.apiserver.kinds.semantics import metadata
from dracpu_sandbox.apiserver.kinds.semantics.table import semantics_of

_NOT_ALL_CHECKED: Final = problems.invalid(
    problems.NOWHERE,
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def admit(
    kind: Kind, new: JsonObject, old: JsonObject | None, *, subresource: str = "", gates: Gates = ON_BY_DEFAULT
) -> JsonObject:
    """Returns the object to store; raises RefusedError when it is invalid. Does not change its arguments.

    `new` is the whole object, also when only its status is written. It is checked against the schema of its kind first;
    the kind's own rules are evaluated only when the object conforms to the schema. A top-level field that has not
    changed is not checked again: a write to the spec succeeds even if the stored status does not conform to the schema.
    """
    normalized: JsonObject = normalize(kind.schema, new)
    unchanged = () if old is None else [name for name in normalized if name in old and normalized[name] == old[name]]
    found = list(check(kind.schema, normalized, unchanged=unchanged))
    if found:
        found += [_NOT_ALL_CHECKED] if kind.rules else []
        raise problems.refusal(kind, _name(normalized), found)
    semantics = semantics_of(kind)
    complete = semantics.gated(semantics.complete(normalized), gates)
    found = [*metadata.check(kind, complete), *semantics.check(complete, old, subresource)]
    found += kind.rules.violations(complete, unchanged=unchanged) if kind.rules else ()
    if found:
        raise problems.refusal(kind, _name(complete), found)
    return complete


def _name(item: JsonObject) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def unknown_fields(kind: Kind, body: JsonObject) -> list[str]:
    """Returns an error for each field of the body that the kind does not have, worded as by the API server."""
    paths: list[str] = []
    normalize(kind.schema, body, unknown=paths)
    return [f'unknown field "{path}"' for path in paths]

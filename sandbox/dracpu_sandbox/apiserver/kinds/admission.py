"""What is stored of an object that a client sends, or a refusal that says what is wrong with it."""

from typing import Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.checking import check
from dracpu_sandbox.apiserver.kinds.gates import ON_BY_DEFAULT, Gates
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.semantics import metadata
from dracpu_sandbox.apiserver.kinds.semantics.table import semantics_of
from dracpu_sandbox.apiserver.kinds.settling import settle

_NOT_ALL_CHECKED: Final = problems.invalid(
    problems.NOWHERE,
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def admit(
    kind: Kind, new: JsonObject, old: JsonObject | None, *, subresource: str = "", gates: Gates = ON_BY_DEFAULT
) -> JsonObject:
    """The object as it is to be stored; raises RefusedError. Changes neither of its arguments.

    `new` is the whole object, also when only its status is written. First it is compared with the schema of its kind;
    the kind's own rules are evaluated when it has nothing but fields of the right types. A top-level field that has not
    changed is not checked again: a write to the spec succeeds also where the stored status is not what the schema says.
    """
    settled: JsonObject = settle(kind.schema, new)
    unchanged = () if old is None else [name for name in settled if name in old and settled[name] == old[name]]
    found = list(check(kind.schema, settled, unchanged=unchanged))
    if found:
        found += [_NOT_ALL_CHECKED] if kind.rules else []
        raise problems.refusal(kind, _name(settled), found)
    semantics = semantics_of(kind)
    complete = semantics.gated(semantics.complete(settled), gates)
    found = [*metadata.check(kind, complete), *semantics.check(complete, old, subresource)]
    found += kind.rules.violations(complete, unchanged=unchanged) if kind.rules else ()
    if found:
        raise problems.refusal(kind, _name(complete), found)
    return complete


def _name(item: JsonObject) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def unknown_fields(kind: Kind, body: JsonObject) -> list[str]:
    """The fields of the body that the kind does not have, in the API server's words."""
    paths: list[str] = []
    settle(kind.schema, body, unknown=paths)
    return [f'unknown field "{path}"' for path in paths]

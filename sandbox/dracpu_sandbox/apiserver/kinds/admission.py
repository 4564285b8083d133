"""What is stored of an object that somebody sends, or a refusal that says why it is not.

The steps are the API server's: types and unknown fields, defaults, then everything that can be wrong, told at once.
"""

from collections.abc import Iterator
from typing import Final

from dracpu_sandbox.apiserver.kinds import problems, settling
from dracpu_sandbox.apiserver.kinds.checking import NOWHERE, check
from dracpu_sandbox.apiserver.kinds.correlation import MISSING
from dracpu_sandbox.apiserver.kinds.gates import ON_BY_DEFAULT, Gates
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import decoding, metadata
from dracpu_sandbox.apiserver.kinds.semantics.table import semantics_of

_BLOCKING: Final = frozenset(  # errors after which rules are not looked at
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_NOT_ALL_CHECKED: Final = problems.invalid(
    NOWHERE,
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def admit(
    kind: Kind, new: JsonObject, old: JsonObject | None, *, subresource: str = "", gates: Gates = ON_BY_DEFAULT
) -> JsonObject:
    """The object as it is to be stored; raises RefusedError. Changes neither of its arguments.

    `new` is the whole object, also when only its status is written: the caller has laid one over the other.
    """
    if kind.is_custom:
        settled = settling.settle(kind.schema or {}, new)
        found = [*metadata.check(kind, settled), *_custom_problems(kind, settled, old)]
    else:
        semantics = semantics_of(kind)
        settled = semantics.gated(semantics.complete(decoding.decode(kind, new)), gates)
        found = [*metadata.check(kind, settled), *semantics.check(settled, old, subresource)]
    if found:
        raise problems.refusal(kind, (settled.get("metadata") or {}).get("name", ""), found)
    return settled


def _custom_problems(kind: Kind, settled: JsonObject, old: JsonObject | None) -> Iterator[Problem]:
    before = MISSING if old is None else old
    found = list(check(kind.schema or {}, settled, before))
    yield from found
    if any(one.reason in _BLOCKING for one in found):
        yield _NOT_ALL_CHECKED
    elif kind.rules:
        yield from kind.rules.violations(settled, before)


def unknown_fields(kind: Kind, body: JsonObject) -> list[str]:
    """What the body has that the kind has not, in the API server's words."""
    paths = settling.unknown(kind.schema or {}, body) if kind.is_custom else decoding.unknown(kind, body)
    return [f'unknown field "{path}"' for path in paths]

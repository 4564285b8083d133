"""The sandbox accepts and refuses the same objects as a real API server, and its refusals name the same fields."""

import copy
import re
from typing import Any

import corpus_files
import pytest
from corpus_files import Case
from recorded_answers import Recorded, definitions, lines, recorded

from dracpu_sandbox.apiserver.kinds.admission import admit, unknown_fields
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.refusal import RefusedError

CORPUS = {entry["what"]: entry for entry in lines("corpus")}
STRICT = ("resource.k8s.io", "example.com", "dra.cpu")  # groups of which the sandbox fills in all defaults


BUILT_IN = [kind for kind in Registry().all() if kind.resource != "events"]
KINDS = {kind.plural: kind for kind in [*BUILT_IN, *map(Registry().serve, definitions())]}


def admitted_by_sandbox(case: Recorded) -> dict[str, Any]:
    """Returns the object that the sandbox stores; raises RefusedError."""
    kind, sent = KINDS[case.kind], copy.deepcopy(case.new)
    old = admit(kind, dict(case.old), None) if case.old is not None else None
    if case.old_status is not None:
        assert old is not None
        old = admit(kind, {**old, "status": case.old_status}, old, subresource="status")
    new = dict(case.new)
    if "status" in kind.subresources and case.subresource != "status":  # a status is written separately
        new.pop("status", None)
        if old is not None and "status" in old:
            new["status"] = old["status"]
    if case.validation == "Strict" and unknown_fields(kind, new):
        raise RefusedError(400, "BadRequest", "strict decoding error")
    admitted = admit(kind, new, old, subresource=case.subresource)
    assert case.new == sent
    assert admit(kind, admitted, admitted, subresource=case.subresource) == admitted
    return admitted


def compare(case: Recorded) -> None:
    if case.stored is None:
        with pytest.raises(RefusedError) as refused:
            admitted_by_sandbox(case)
        if case.answer["code"] == 422:
            assert refused.value.code == 422
            assert related([cause.field for cause in refused.value.causes], case.answer["fields"])
    elif KINDS[case.kind].group in STRICT:
        assert plain(admitted_by_sandbox(case)) == plain(case.stored)
    else:
        assert is_part(plain(admitted_by_sandbox(case)), plain(case.stored))


def related(ours: list[str], theirs: list[str]) -> bool:
    """Returns whether each field of either list equals, contains or is inside of a field of the other list."""

    def parts(field: str) -> list[str]:
        return [] if field == "<nil>" else re.split(r"[.\[\]]+", field.rstrip("]"))  # <nil>: the whole object

    def named(field: str, others: list[str]) -> bool:
        here = parts(field)
        return any(here[: len(other)] == other[: len(here)] for other in map(parts, others))

    return all(named(field, theirs) for field in ours) and all(named(field, ours) for field in theirs)


def plain(value: Any) -> Any:
    """Removes empty values, which a server written in Go may write or leave out."""
    if isinstance(value, dict):
        shown = {name: plain(item) for name, item in value.items()}
        return {name: item for name, item in shown.items() if item not in (None, {}, [], "")}
    return [plain(item) for item in value] if isinstance(value, list) else value


def is_part(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(is_part(value, whole.get(name)) for name, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(is_part, part, whole))
    return bool(part == whole)


@pytest.mark.parametrize("case", recorded("builtin") + recorded("custom"), ids=str)
def test_an_object_is_stored_or_refused_as_by_a_real_api_server(case: Recorded) -> None:
    compare(case)


@pytest.mark.parametrize("case", corpus_files.good() + corpus_files.bad(), ids=str)
def test_the_corpus_is_stored_or_refused_as_by_a_real_api_server(case: Case) -> None:
    plural = next(kind.plural for kind in KINDS.values() if kind.kind == case.object["kind"])
    answer = CORPUS[str(case)]
    sent = {name: value for name, value in case.object.items() if name != "status"}
    as_recorded = {"stored": {**sent, "spec": answer["spec"]}} if "spec" in answer else answer
    compare(Recorded(str(case), plural, sent, as_recorded, validation="Strict"))

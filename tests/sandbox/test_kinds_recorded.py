"""Objects are judged as a real API server judged them, message by message."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import corpus_files
import pytest
import yaml
from corpus_files import Case
from recorded_answers import Recorded, essence, lines, recorded, things

from dracpu_sandbox.apiserver.kinds.admission import admit, unknown_fields
from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.refusal import RefusedError

CORPUS = {entry["what"]: entry for entry in lines("corpus")}
CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="module")
def kinds() -> Mapping[str, Kind]:
    registry = Registry()
    registry.serve(things())
    for name in ("cpudriverconfigs", "cpunodes"):
        registry.serve(yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
    return {kind.plural: kind for kind in registry.all() if (kind.group, kind.plural) != ("", "events")}


def judge(kind: Kind, case: Recorded) -> dict[str, Any]:
    """What the API server would store; raises what it would answer."""
    old = admit(kind, dict(case.old), None) if case.old is not None else None
    if case.old_status is not None:
        assert old is not None
        old = admit(kind, {**old, "status": case.old_status}, old, subresource="status")
    new = dict(case.new)
    if "status" in kind.subresources and kind.kind != "Node":  # written separately, as the verbs do
        status = new.pop("status", None) if case.subresource != "status" else None
        assert status is None or not case.subresource
        if old is not None and case.subresource != "status" and "status" in old:
            new["status"] = old["status"]
    if case.validation == "Strict":
        unknown = unknown_fields(kind, new)
        if unknown:
            text = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
            raise RefusedError(400, "BadRequest", f"{text}: strict decoding error: {', '.join(unknown)}")
    return admit(kind, new, old, subresource=case.subresource)


def compare(kind: Kind, case: Recorded) -> None:
    if case.stored is not None:
        stored = judge(kind, case)
        # an empty object that Go always writes says nothing
        assert plain(stored) == plain(case.stored)
        return
    with pytest.raises(RefusedError) as refused:
        judge(kind, case)
    assert essence(str(refused.value)) == essence(case.answer["message"])
    assert refused.value.code == case.answer["code"]


def plain(value: Any) -> Any:
    """Without what is empty: nothing, empty texts, lists and objects that Go may write or leave out."""
    if isinstance(value, dict):
        shown = {name: plain(one) for name, one in value.items()}
        return {name: one for name, one in shown.items() if one not in (None, {}, [], "")}
    return [plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", recorded("custom"), ids=str)
def test_custom_resources_are_judged_alike(kinds: Mapping[str, Kind], case: Recorded) -> None:
    compare(kinds[case.kind], case)


@pytest.mark.parametrize("case", recorded("builtin"), ids=str)
def test_built_in_objects_are_judged_alike(kinds: Mapping[str, Kind], case: Recorded) -> None:
    compare(kinds[case.kind], case)


@pytest.mark.parametrize("case", recorded("definitions"), ids=str)
def test_definitions_are_judged_alike(kinds: Mapping[str, Kind], case: Recorded) -> None:
    compare(kinds[case.kind], case)


@pytest.mark.parametrize("case", corpus_files.good() + corpus_files.bad(), ids=str)
def test_the_corpus_is_judged_alike(kinds: Mapping[str, Kind], case: Case) -> None:
    kind = next(one for one in kinds.values() if one.kind == case.object["kind"])
    answer = CORPUS[str(case)]
    sent = {name: value for name, value in case.object.items() if name != "status"}
    as_recorded = {"stored": {**sent, "spec": answer["spec"]}} if "spec" in answer else answer
    compare(kind, Recorded(str(case), kind.plural, sent, {**as_recorded}, validation="Strict"))

"""Admission fills in defaults, refuses invalid objects, and names the features that the sandbox does not support."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_answers import recorded, things

from dracpu_sandbox.apiserver.kinds.admission import admit, unknown_fields
from dracpu_sandbox.apiserver.kinds.kind import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.refusal import RefusedError

BUILT_IN = {kind.plural: kind for kind in Registry().all() if kind.storage != "events" or kind.stored_as}
GOOD = [case for case in recorded("builtin") if case.stored is not None and case.old is None]
VALUES = st.sampled_from([None, "", "x", "Bad_Name", "-1", 0, -1, 1.5, True, [], {}, [None], ["x"], {"a": None}])


def kind_of(schema: JsonObject) -> Kind:
    """Returns a kind whose spec has this schema."""
    definition = things()
    version = definition["spec"]["versions"][0]
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}
    return Registry().serve(definition)


def refusal_of(kind: Kind, spec: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        admit(kind, {"metadata": {"name": "x"}, "spec": spec}, None)
    return str(refused.value).partition(" is invalid: ")[2]


def paths_of(value: Any) -> list[tuple[Any, ...]]:
    """Returns the paths of all parts of a value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for name, part in parts for path in [(name,), *((name, *rest) for rest in paths_of(part))]]


@given(data=st.data())
@settings(max_examples=400)
def test_an_object_with_a_random_value_is_admitted_or_refused(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from([*GOOD, *(case for case in recorded("custom") if case.stored is not None)]))
    kind = BUILT_IN.get(case.kind) or Registry().serve(things())
    item = copy.deepcopy(dict(case.new))
    *path, last = data.draw(st.sampled_from([path for path in paths_of(item) if path != ("metadata",)]))
    place = item
    for step in path:
        place = place[step]
    place[last] = data.draw(VALUES)
    try:
        admitted = admit(kind, item, None)
    except RefusedError as refused:
        verdict: tuple[object, ...] = (refused.code, bool(refused.causes))
    else:
        verdict = (admit(kind, admitted, admitted) == admitted, unknown_fields(kind, admitted))
    assert verdict in [(422, True), (True, [])]


def test_a_rule_that_cannot_be_evaluated_counts_as_violated() -> None:
    rule = {"rule": "self.a > 1", "message": "a must be larger"}
    kind = kind_of({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [rule]})
    assert refusal_of(kind, {"a": 1}) == "spec: Invalid value: a must be larger"
    assert refusal_of(kind, {}).endswith("evaluating rule: a must be larger")


def test_the_spec_can_change_while_the_stored_status_violates_its_schema() -> None:
    bad = {"metadata": {"name": "x"}, "spec": {"size": 1}, "status": {"conditions": [{"status": "True"}]}}
    thing = Registry().serve(things())
    assert admit(thing, {**bad, "spec": {"size": 2}}, bad)["spec"]["size"] == 2
    with pytest.raises(RefusedError, match="status.conditions"):
        admit(thing, bad, {**bad, "status": {}}, subresource="status")


def test_the_dollar_of_a_pattern_matches_only_the_end_of_the_text() -> None:
    kind = kind_of({"type": "object", "properties": {"a": {"type": "string", "pattern": r"^[$a]\$?$"}}})
    assert admit(kind, {"metadata": {"name": "x"}, "spec": {"a": "$$"}}, None)
    assert "should match" in refusal_of(kind, {"a": "a\n"})


@pytest.mark.parametrize(
    "schema, unsupported",
    [
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, "the keyword anyOf"),
        ({"type": "string", "format": "ipv4"}, "the format ipv4"),
        ({"type": "object", "additionalProperties": True}, "the schema true"),
        ({"type": "string", "x-kubernetes-validations": [{"rule": "true", "reason": "x"}]}, "reason of rules"),
    ],
)
def test_an_unsupported_feature_of_a_schema_is_refused_by_name(schema: JsonObject, unsupported: str) -> None:
    with pytest.raises(RefusedError, match=f"the sandbox does not support {unsupported};"):
        kind_of({"type": "object", "properties": {"inner": schema}})


def test_definitions_with_several_versions_or_computed_columns_are_refused() -> None:
    several, computed = things(), things()
    several["spec"]["versions"] *= 2
    computed["spec"]["versions"][0]["additionalPrinterColumns"][0]["jsonPath"] = ".spec.items[*].name"
    for definition, unsupported in ((several, "several versions"), (computed, "paths other than field names")):
        with pytest.raises(RefusedError, match=f"the sandbox does not support .*{unsupported}"):
            Registry().serve(definition)


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(RefusedError, match="must be a regular expression"):
        kind_of({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}})


def test_only_a_binding_changes_the_spec_of_a_pod_beyond_tolerations_and_scheduling_gates() -> None:
    kind = BUILT_IN["pods"]
    tolerations = [{"key": "a", "operator": "Exists"}]
    spec = {"containers": [{"name": "a", "image": "i"}], "schedulingGates": [{"name": "g"}], "tolerations": tolerations}
    pod = admit(kind, {"metadata": {"name": "p"}, "spec": spec}, None)

    def changed(**fields: Any) -> JsonObject:
        return {**pod, "spec": {**pod["spec"], **fields}}

    assert admit(kind, changed(nodeName="n"), pod, subresource="binding")
    assert admit(kind, changed(tolerations=[*pod["spec"]["tolerations"], {"key": "b"}], schedulingGates=[]), pod)
    gates = [{"name": "g"}, {"name": "h"}]
    for change in (changed(nodeName="n"), changed(tolerations=[]), changed(schedulingGates=gates)):
        with pytest.raises(RefusedError, match="may change"):
            admit(kind, change, pod)


def test_features_of_slices_and_claims_that_only_other_drivers_use_are_refused() -> None:
    pool = {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
    for selection in ({"allNodes": True}, {"nodeName": "n", "perDeviceNodeSelection": True}):
        assert "does not support slices with" in refusal_of(BUILT_IN["resourceslices"], {**pool, **selection})
    request = {"name": "r", "exactly": {"deviceClassName": "c", "adminAccess": True}}
    refusal = refusal_of(BUILT_IN["resourceclaims"], {"devices": {"requests": [request]}})
    assert "the sandbox does not support admin access" in refusal

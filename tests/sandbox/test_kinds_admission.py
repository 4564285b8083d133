"""Admission changes nothing that it is given, is content with what it made, and judges by rules of every sort."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_answers import recorded, things

from dracpu_sandbox.apiserver.kinds import settling
from dracpu_sandbox.apiserver.kinds.admission import admit, unknown_fields
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.kinds.rules import escaped
from dracpu_sandbox.apiserver.refusal import RefusedError


def kind_of(schema: JsonObject) -> Kind:
    """A kind whose spec has this schema."""
    definition = things()
    version = definition["spec"]["versions"][0]
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}
    (kind,) = Registry().serve(definition)
    return kind


def spec_of(kind: Kind, spec: Any, old: Any = None) -> Any:
    """What becomes of a spec."""

    def whole(value: Any) -> JsonObject:
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}, "spec": value}

    return admit(kind, whole(spec), None if old is None else whole(old))["spec"]


def refusal_of(kind: Kind, spec: Any, old: Any = None) -> str:
    with pytest.raises(RefusedError) as refused:
        spec_of(kind, spec, old)
    return str(refused.value).partition(" is invalid: ")[2]


def ruled(rule: JsonObject, **fields: JsonObject) -> Kind:
    return kind_of({"type": "object", "properties": fields, "x-kubernetes-validations": [rule]})


BUILT_IN = {kind.plural: kind for kind in Registry().all() if kind.storage != "events" or kind.stored_as}
GOOD = [case for case in recorded("builtin") if case.stored is not None and case.old is None and case.kind in BUILT_IN]


@pytest.mark.parametrize("case", GOOD, ids=str)
def test_what_was_admitted_is_admitted_unchanged(case: Any) -> None:
    kind = BUILT_IN[case.kind]
    sent = copy.deepcopy(case.new)
    once = admit(kind, case.new, None)
    assert case.new == sent
    kept = copy.deepcopy(once)
    assert admit(kind, once, once) == once == kept
    assert unknown_fields(kind, once) == []


(THING,) = Registry().serve(things())
SCHEMA = THING.schema or {}
KNOWN_FIELDS = st.dictionaries(
    st.sampled_from([*SCHEMA["properties"]["spec"]["properties"], "unknown"]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab1", max_size=3),
        lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from("abxy"), inside, max_size=3),
        max_leaves=6,
    ),
    max_size=5,
)


@given(spec=KNOWN_FIELDS)
@settings(max_examples=200)
def test_whatever_is_sent_is_settled_once_and_for_all(spec: JsonObject) -> None:
    item = {"metadata": {"name": "x"}, "spec": spec}
    sent = copy.deepcopy(item)
    once = settling.settle(SCHEMA, item)
    assert item == sent
    assert settling.settle(SCHEMA, once) == once
    assert list(settling.unknown(SCHEMA, once)) == []


@given(spec=KNOWN_FIELDS)
@settings(max_examples=200)
def test_whatever_is_sent_is_admitted_or_refused(spec: JsonObject) -> None:
    item = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"size": 2, **spec}}
    try:
        admitted = admit(THING, item, None)
    except RefusedError as refused:
        verdict: tuple[object, ...] = (refused.code, bool(refused.causes))
    else:
        verdict = (admit(THING, admitted, admitted) == admitted,)
    assert verdict in {(422, True), (True,)}


JUNK = st.sampled_from([None, "", "x", "Bad_Name", "-1", 0, -1, 1.5, True, [], {}, [None], ["x"], {"a": None}])


def paths_of(value: Any) -> list[tuple[Any, ...]]:
    """The ways to all parts of a value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for name, one in parts for way in [(name,), *((name, *rest) for rest in paths_of(one))]]


@given(data=st.data())
@settings(max_examples=400)
def test_a_built_in_object_with_junk_in_it_is_admitted_or_refused(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(GOOD))
    kind = BUILT_IN[case.kind]
    item = copy.deepcopy(dict(case.new))
    *way, last = data.draw(st.sampled_from([way for way in paths_of(item) if way != ("metadata",)]))
    place = item
    for step in way:
        place = place[step]
    place[last] = data.draw(JUNK)
    try:
        admitted = admit(kind, item, None)
        admit(kind, admitted, admitted, subresource=case.subresource)
    except RefusedError as refused:
        code = refused.code
    else:
        code = 200
    assert code in {200, 400, 422}
    unknown_fields(kind, item)


def test_a_message_that_cannot_be_made_gives_way_to_the_written_one() -> None:
    rule = {"rule": "self.a > 1", "message": "a must be larger", "messageExpression": "self.missing"}
    assert refusal_of(ruled(rule, a={"type": "integer"}), {"a": 1}) == "spec: Invalid value: a must be larger"


def test_a_rule_that_fails_itself_is_told() -> None:
    told = refusal_of(ruled({"rule": "self.a > 1"}, a={"type": "integer"}), {})
    assert told.startswith("spec: Invalid value: ")
    assert told.endswith("evaluating rule: failed rule: self.a > 1")


@pytest.mark.parametrize(
    "name, spelt",
    [
        ("namespace", "__namespace__"),
        ("a-b", "a__dash__b"),
        ("a.b", "a__dot__b"),
        ("a/b", "a__slash__b"),
        ("a__b", "a__underscores__b"),
    ],
)
def test_names_that_cel_cannot_spell_are_escaped(name: str, spelt: str) -> None:
    assert escaped(name) == spelt
    kind = ruled({"rule": f"self.{spelt} == 'x'", "message": "no x"}, **{name: {"type": "string"}})
    assert spec_of(kind, {name: "x"}) == {name: "x"}
    assert refusal_of(kind, {name: "y"}) == "spec: Invalid value: no x"


def test_rules_see_values_by_the_types_of_their_schema() -> None:
    fields = {
        "since": {"type": "string", "format": "date-time"},
        "wait": {"type": "string", "format": "duration"},
        "ratio": {"type": "number"},
    }
    rule = {
        "rule": "self.since < timestamp('2027-01-01T00:00:00Z') && self.wait < duration('2h') && self.ratio < 1.5",
        "message": "no",
    }
    kind = ruled(rule, **fields)
    assert spec_of(kind, {"since": "2026-01-01T00:00:00Z", "wait": "1h30m", "ratio": 1})
    assert refusal_of(kind, {"since": "2026-01-01T00:00:00Z", "wait": "150m", "ratio": 1}) == "spec: Invalid value: no"


def test_old_self_inside_of_a_text_is_only_a_text() -> None:
    rule = {"rule": "self.a != 'oldSelf' && \"oldSelf\" != self.a", "message": "no"}
    kind = ruled(rule, a={"type": "string"})
    assert refusal_of(kind, {"a": "oldSelf"}) == "spec: Invalid value: no"


def test_what_has_not_changed_is_not_judged_again() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 5}, "b": {"type": "integer"}}}
    kind = kind_of(schema)
    assert spec_of(kind, {"a": 9, "b": 2}, {"a": 9, "b": 1}) == {"a": 9, "b": 2}
    assert "should be less than or equal to 5" in refusal_of(kind, {"a": 8, "b": 2}, {"a": 9, "b": 2})


def test_a_truth_value_is_no_number() -> None:
    kind = kind_of({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "integer", "enum": [1]}}})
    assert "must be of type boolean" in refusal_of(kind, {"a": 1}, {"a": True})
    assert "must be of type integer" in refusal_of(kind, {"b": True})


def test_items_of_a_long_map_are_told_apart() -> None:
    rule = {"rule": "self == oldSelf", "message": "fixed"}
    fields = {"name": {"type": "string"}, "value": {"type": "integer", "x-kubernetes-validations": [rule]}}
    items = {"type": "object", "required": ["name"], "properties": fields}
    listed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": items}
    kind = kind_of({"type": "object", "properties": {"list": {"type": "array", **listed}}})
    many = [{"name": f"n{number}", "value": number} for number in range(3000)]
    assert spec_of(kind, {"list": many[::-1]}, {"list": many})
    changed = [*many[:-1], {"name": "n2999", "value": 0}]
    assert refusal_of(kind, {"list": changed}, {"list": many}) == "spec.list[2999].value: Invalid value: 0: fixed"
    assert "Duplicate value" in refusal_of(kind, {"list": [*many, many[0]]})


def test_a_pattern_means_the_end_of_the_text_by_a_dollar() -> None:
    kind = kind_of({"type": "object", "properties": {"a": {"type": "string", "pattern": r"^[$a]\$?$"}}})
    assert spec_of(kind, {"a": "$$"})
    assert "should match" in refusal_of(kind, {"a": "a\n"})


def test_a_refusal_names_each_cause_once() -> None:
    with pytest.raises(RefusedError) as refused:
        spec_of(kind_of({"type": "object", "required": ["a", "b"], "properties": {}}), {})
    assert refused.value.status["details"]["causes"][:2] == [
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.a"},
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.b"},
    ]
    assert refused.value.status["details"]["kind"] == "Thing"


def test_a_node_tells_what_it_offers() -> None:
    node = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": 8}, "nodeInfo": {"kubeletVersion": "v1"}}}
    status = admit(BUILT_IN["nodes"], node, None)["status"]
    assert status["allocatable"] == {"cpu": "8"}
    assert status["nodeInfo"]["kubeletVersion"] == "v1"
    assert status["nodeInfo"]["osImage"] == ""


def test_binding_a_pod_is_no_change_of_its_spec() -> None:
    kind = BUILT_IN["pods"]
    pod = admit(kind, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "i"}]}}, None)
    bound = {**pod, "spec": {**pod["spec"], "nodeName": "n"}}
    assert admit(kind, bound, pod, subresource="binding")["spec"]["nodeName"] == "n"
    with pytest.raises(RefusedError, match="pod updates may not change fields"):
        admit(kind, bound, pod)


def test_tolerations_of_a_pod_may_grow_and_gates_may_go() -> None:
    kind = BUILT_IN["pods"]
    spec = {
        "containers": [{"name": "a", "image": "i"}],
        "schedulingGates": [{"name": "g"}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }
    pod = admit(kind, {"metadata": {"name": "p"}, "spec": spec}, None)
    grown = [*pod["spec"]["tolerations"], {"key": "b", "operator": "Exists"}]
    assert admit(kind, {**pod, "spec": {**pod["spec"], "tolerations": grown, "schedulingGates": []}}, pod)
    changes: tuple[JsonObject, ...] = ({"tolerations": []}, {"schedulingGates": [{"name": "g"}, {"name": "h"}]})
    for change in changes:
        with pytest.raises(RefusedError, match="pod updates may not change fields"):
            admit(kind, {**pod, "spec": {**pod["spec"], **change}}, pod)

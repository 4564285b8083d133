"""Field sets: the fields of an object, the differences of two objects, and their encoding in managedFields."""

from typing import Any

from hypothesis import given
from owned_objects import OBJECTS, SHAPE

from dracpu_sandbox.apiserver.fieldsets import (
    Shape,
    compare,
    decode_fields,
    describe,
    encode_fields,
    field_set,
    with_parents,
)
from dracpu_sandbox.apiserver.kinds.kind import ListType


def test_the_fields_of_an_object_are_its_leaves_and_items_of_lists() -> None:
    spec = {"color": "red", "parts": [{"name": "a", "use": "x"}], "tags": ["t"], "lines": ["1"], "whole": {"k": "v"}}
    assert field_set({"spec": spec}, SHAPE) == {
        ("f:spec", "f:color"),
        ("f:spec", "f:parts", 'k:{"name":"a"}'),
        ("f:spec", "f:parts", 'k:{"name":"a"}', "f:name"),
        ("f:spec", "f:parts", 'k:{"name":"a"}', "f:use"),
        ("f:spec", "f:tags", 'v:"t"'),
        ("f:spec", "f:lines"),
        ("f:spec", "f:whole"),
    }


def test_an_empty_mapping_is_a_field_and_an_empty_list_of_items_is_not() -> None:
    assert field_set({"spec": {"nested": {}, "parts": []}}, SHAPE) == {("f:spec", "f:nested")}


def test_a_missing_key_of_an_item_has_its_default() -> None:
    ports = ListType("map", ("containerPort", "protocol"), {"protocol": "TCP"})
    fields = field_set({"ports": [{"containerPort": 80}]}, Shape(lambda names: ports))
    assert ("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}') in fields


def test_a_new_field_is_added_with_its_parts() -> None:
    added = compare({}, {"spec": {"nested": {"x": "1"}}}, SHAPE).added
    assert added == {("f:spec",), ("f:spec", "f:nested"), ("f:spec", "f:nested", "f:x")}


def test_the_order_counts_in_plain_lists_and_not_in_lists_with_keys() -> None:
    before = {"spec": {"parts": [{"name": "a"}, {"name": "b"}], "lines": ["1", "2"]}}
    after = {"spec": {"parts": [{"name": "b"}, {"name": "a"}], "lines": ["2", "1"]}}
    assert compare(before, after, SHAPE).modified == {("f:spec", "f:lines")}


def test_a_path_is_rendered_for_messages() -> None:
    assert describe(("f:spec", "f:parts", 'k:{"name":"a","number":1}', "f:use")) == '.spec.parts[name="a",number=1].use'
    assert describe(("f:spec", "f:tags", 'v:"t"')) == '.spec.tags[="t"]'


def test_the_parents_of_a_field_include_no_items_of_lists() -> None:
    path = ("f:spec", "f:parts", 'k:{"name":"a"}', "f:use")
    assert with_parents([path]) == {path, ("f:spec",), ("f:spec", "f:parts")}


@given(OBJECTS)
def test_encoded_fields_can_be_decoded(value: dict[str, Any]) -> None:
    fields = compare({}, value, SHAPE).added
    assert decode_fields(encode_fields(fields)) == fields


@given(OBJECTS, OBJECTS)
def test_a_comparison_is_symmetric(first: dict[str, Any], second: dict[str, Any]) -> None:
    there, back = compare(first, second, SHAPE), compare(second, first, SHAPE)
    assert (there.added, there.removed, there.modified) == (back.removed, back.added, back.modified)

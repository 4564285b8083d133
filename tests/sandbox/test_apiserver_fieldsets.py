"""Sets of fields: what an object has, what differs between two, and how both are written in managedFields."""

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
    without,
)
from dracpu_sandbox.apiserver.kinds.model import ListType


def test_fields_are_leaves_and_items_of_lists() -> None:
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


def test_an_empty_mapping_is_a_field_but_an_empty_list_of_items_is_none() -> None:
    assert field_set({"spec": {"nested": {}, "parts": []}}, SHAPE) == {("f:spec", "f:nested")}


def test_a_key_that_an_item_leaves_out_has_its_default() -> None:
    ports = ListType("map", ("containerPort", "protocol"), {"protocol": "TCP"})
    fields = field_set({"ports": [{"containerPort": 80}]}, Shape(lambda names: ports))
    assert ("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}') in fields


def test_what_is_new_is_added_with_all_that_is_in_it() -> None:
    added = compare({}, {"spec": {"nested": {"x": "1"}}}, SHAPE).added
    assert added == {("f:spec",), ("f:spec", "f:nested"), ("f:spec", "f:nested", "f:x")}


def test_the_order_of_items_is_no_difference_but_that_of_plain_lists_is() -> None:
    before = {"spec": {"parts": [{"name": "a"}, {"name": "b"}], "lines": ["1", "2"]}}
    after = {"spec": {"parts": [{"name": "b"}, {"name": "a"}], "lines": ["2", "1"]}}
    assert compare(before, after, SHAPE).modified == {("f:spec", "f:lines")}


def test_a_path_is_described_as_messages_show_it() -> None:
    assert describe(("f:spec", "f:parts", 'k:{"name":"a","number":1}', "f:use")) == '.spec.parts[name="a",number=1].use'
    assert describe(("f:spec", "f:tags", 'v:"t"')) == '.spec.tags[="t"]'


def test_parents_of_an_item_are_fields_the_item_is_not() -> None:
    path = ("f:spec", "f:parts", 'k:{"name":"a"}', "f:use")
    assert with_parents([path]) == {path, ("f:spec",), ("f:spec", "f:parts")}


@given(OBJECTS)
def test_what_is_encoded_can_be_decoded(one: dict[str, Any]) -> None:
    fields = compare({}, one, SHAPE).added
    assert decode_fields(encode_fields(fields)) == fields


@given(OBJECTS)
def test_an_object_does_not_differ_from_itself(one: dict[str, Any]) -> None:
    copied = decode_copy(one)
    difference = compare(one, copied, SHAPE)
    assert not difference.added | difference.modified | difference.removed


@given(OBJECTS, OBJECTS)
def test_differences_are_told_the_same_from_both_sides(one: dict[str, Any], other: dict[str, Any]) -> None:
    there, back = compare(one, other, SHAPE), compare(other, one, SHAPE)
    assert (there.added, there.removed, there.modified) == (back.removed, back.added, back.modified)


@given(OBJECTS, OBJECTS)
def test_without_what_was_added_the_old_fields_are_left(one: dict[str, Any], other: dict[str, Any]) -> None:
    added = compare(one, other, SHAPE).added
    left = without(other, added, SHAPE)
    assert not compare(one, left, SHAPE).added
    assert field_set(left, SHAPE) == field_set(other, SHAPE) - added | emptied(left)


def emptied(one: dict[str, Any]) -> frozenset[tuple[str, ...]]:
    """The mappings of an object that have nothing in them (any more)."""
    return frozenset(path for path in field_set(one, SHAPE) if value_at(one, path) == {})


def value_at(one: Any, path: tuple[str, ...]) -> Any:
    for element in path:
        if not element.startswith("f:"):
            return None
        one = one.get(element[2:])
    return one


def decode_copy(one: Any) -> Any:
    """An equal object that is nowhere the same."""
    if isinstance(one, dict):
        return {name: decode_copy(value) for name, value in one.items()}
    return [decode_copy(item) for item in one] if isinstance(one, list) else one

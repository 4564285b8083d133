"""Patches return changed copies of objects, as their specifications define, and do not change their arguments."""

import copy
from typing import Any

import pytest

from dracpu_sandbox.apiserver.fieldsets import Shape
from dracpu_sandbox.apiserver.kinds.kind import ATOMIC, ListType
from dracpu_sandbox.apiserver.patches import json_patched, merge_patched
from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.apiserver.strategic import strategic_patched

LISTS: dict[tuple[str, ...], ListType] = {("items",): ListType("map", ("name", "protocol")), ("tags",): ListType("set")}
SHAPE = Shape(lambda names: LISTS.get(names, ATOMIC))


@pytest.mark.parametrize(
    "target, patch, made",
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({"a": 1}, {"b": {"c": None}}, {"a": 1, "b": {}}),
    ],
)
def test_a_merge_patch_merges_objects_and_removes_nulls(target: Any, patch: Any, made: Any) -> None:
    before = copy.deepcopy(target)
    assert merge_patched(target, patch) == made
    assert target == before


@pytest.mark.parametrize(
    "target, steps, made",
    [
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": {"b/c": 1}}, [{"op": "remove", "path": "/a/b~1c"}], {"a": {}}),
        (
            {"a": {"b": 1}},
            [{"op": "test", "path": "/a/b", "value": 1}, {"op": "replace", "path": "/a/b", "value": 2}],
            {"a": {"b": 2}},
        ),
    ],
    ids=str,
)
def test_a_json_patch_executes_its_operations_in_order(target: Any, steps: Any, made: Any) -> None:
    before = copy.deepcopy(target)
    assert json_patched(target, steps) == made
    assert target == before


@pytest.mark.parametrize(
    "steps, code",
    [
        ([{"op": "remove", "path": "/b"}], 422),
        ([{"op": "test", "path": "/a", "value": 5}], 422),
        ([{"op": "add", "path": "b", "value": 1}], 422),
        ([{"op": "invent", "path": "/b"}], 400),
        ({"a": 1}, 400),
    ],
    ids=str,
)
def test_a_json_patch_that_fails_is_refused(steps: Any, code: int) -> None:
    with pytest.raises(RefusedError) as refused:
        json_patched({"a": [0]}, steps)
    assert refused.value.code == code


def item(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


@pytest.mark.parametrize(
    "target, patch, made",
    [
        (
            {"items": [item("a", x=1), item("b")]},
            {"items": [item("a", y=2)]},
            {"items": [item("a", x=1, y=2), item("b")]},
        ),
        ({"items": [item("a")]}, {"items": [item("b")]}, {"items": [item("a"), item("b")]}),
        ({"items": [item("a"), item("b")]}, {"items": [{"$patch": "delete", "name": "a"}]}, {"items": [item("b")]}),
        ({"items": [item("a")]}, {"items": None}, {}),
        ({"plain": [1]}, {"plain": [2]}, {"plain": [2]}),
        ({"tags": ["a"]}, {"tags": ["a", "b"]}, {"tags": ["a", "b"]}),
        ({"tags": ["a", "b"]}, {"$deleteFromPrimitiveList/tags": ["a"]}, {"tags": ["b"]}),
        (
            {"items": [item("a"), item("b")]},
            {"$setElementOrder/items": [item("b"), item("a"), item("c")], "items": [item("c")]},
            {"items": [item("a"), item("b"), item("c")]},
        ),
    ],
)
def test_a_strategic_merge_patch_merges_lists_by_keys(target: Any, patch: Any, made: Any) -> None:
    before = copy.deepcopy(target)
    assert strategic_patched(target, patch, SHAPE) == made
    assert target == before


@pytest.mark.parametrize(
    "patch, words",
    [
        ({"items": [{"x": 1}]}, "an item of items has no 'name'"),
        ({"m": {"$retainKeys": ["a"]}}, r"does not support the directive '\$retainKeys'"),
        ({"m": {"$patch": "replace"}}, r"does not support the directive '\$patch'"),
    ],
)
def test_a_strategic_merge_patch_that_is_malformed_or_not_supported_is_refused(patch: Any, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        strategic_patched({"m": {}}, patch, SHAPE)

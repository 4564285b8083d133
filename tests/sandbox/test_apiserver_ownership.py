"""Field ownership after sequences of writes. The expected results were compared with a real kube-apiserver's."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from owned_objects import OBJECTS, SHAPE

from dracpu_sandbox.apiserver.fieldsets import compare, describe, field_set
from dracpu_sandbox.apiserver.ownership import (
    Manager,
    Shares,
    applied,
    decode_shares,
    encode_shares,
    updated,
)
from dracpu_sandbox.apiserver.refusal import RefusedError

NOW = "2026-01-01T00:00:00Z"


class Writers:
    """An object with several writers."""

    def __init__(self) -> None:
        self.object: dict[str, Any] = {}
        self.shares: Shares = {}

    def apply(self, name: str, config: dict[str, Any], *, force: bool = False, subresource: str = "") -> None:
        writer = Manager(name, "Apply", "v1", subresource)
        made = applied(self.object, config, self.shares, writer, SHAPE, NOW, force=force)
        self.object, self.shares = {"metadata": {}, **made.object}, made.shares

    def update(self, name: str, new: dict[str, Any], subresource: str = "") -> None:
        self.shares = updated(self.object, new, self.shares, Manager(name, "Update", "v1", subresource), SHAPE, NOW)
        self.object = {"metadata": {}, **new}

    def owns(self, name: str) -> set[str]:
        """Returns the fields of a manager, except for mappings and lists that have parts."""
        paths = [path for share in self.shares.values() if share.manager.name == name for path in share.fields]
        return {describe(path) for path in paths if path in field_set(self.object, SHAPE)}


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def test_an_apply_owns_the_fields_that_it_names() -> None:
    writers = Writers()
    writers.apply("a", spec(color="red"))
    writers.apply("b", spec(nested={"x": "1"}))
    assert writers.object["spec"] == {"color": "red", "nested": {"x": "1"}}
    assert (writers.owns("a"), writers.owns("b")) == ({".spec.color"}, {".spec.nested.x"})


def test_a_field_that_an_apply_no_longer_names_is_removed_when_it_has_no_other_owner() -> None:
    writers = Writers()
    writers.apply("a", spec(color="red", lines=["1"]))
    writers.apply("b", spec(lines=["1"]))
    writers.apply("a", spec())
    assert writers.object["spec"] == {"lines": ["1"]}
    assert writers.owns("b") == {".spec.lines"}


def test_the_owner_of_an_item_removes_it_with_parts_of_other_owners() -> None:
    writers = Writers()
    writers.apply("a", spec(parts=[{"name": "a", "use": "x"}, {"name": "b"}]))
    writers.update("b", spec(parts=[{"name": "a", "use": "y"}, {"name": "b"}]))
    writers.apply("a", spec(parts=[{"name": "b"}]))
    assert writers.object["spec"]["parts"] == [{"name": "b"}]


def test_a_conflict_names_the_other_owners_and_the_fields() -> None:
    writers = Writers()
    writers.update("editor", spec(color="red"))
    writers.apply("b", {"spec": {"lines": ["1"]}})
    with pytest.raises(RefusedError) as refused:
        writers.apply("a", spec(color="blue", lines=["2"]))
    listed = 'conflict with "b": .spec.lines, conflict with "editor" using v1: .spec.color'
    assert str(refused.value) == f"Apply failed with 2 conflicts: {listed}"
    assert [cause.field for cause in refused.value.causes] == [".spec.lines", ".spec.color"]
    assert refused.value.code == 409


def test_an_equal_value_is_shared_and_force_takes_a_field_from_its_other_owners() -> None:
    writers = Writers()
    writers.apply("a", spec(color="red"))
    writers.apply("b", spec(color="red"))
    assert writers.owns("a") == writers.owns("b") == {".spec.color"}
    writers.apply("b", spec(color="blue"), force=True)
    assert (writers.owns("a"), writers.owns("b")) == (set(), {".spec.color"})


def test_an_update_takes_the_fields_that_it_changes() -> None:
    writers = Writers()
    writers.apply("a", spec(color="red", lines=["1"]))
    writers.update("editor", spec(color="blue", lines=["1"]))
    assert (writers.owns("a"), writers.owns("editor")) == ({".spec.lines"}, {".spec.color"})


def test_an_apply_of_the_status_owns_fields_of_the_status_only() -> None:
    writers = Writers()
    writers.apply("operator", spec(color="red"))
    writers.apply("operator", {"status": {"phase": "Ready"}}, subresource="status")
    assert writers.object["status"] == {"phase": "Ready"}
    writers.apply("operator", {"status": {}}, subresource="status")
    assert writers.object["spec"] == {"color": "red"}
    assert "phase" not in writers.object["status"]


def test_applied_items_have_the_order_of_the_configuration_and_others_keep_their_place() -> None:
    writers = Writers()
    writers.apply("a", spec(parts=[{"name": "s"}, {"name": "r"}]))
    writers.apply("b", spec(parts=[{"name": "p"}, {"name": "r"}, {"name": "q"}]))
    assert [part["name"] for part in writers.object["spec"]["parts"]] == ["s", "p", "r", "q"]


def test_encoded_shares_can_be_decoded() -> None:
    writers = Writers()
    writers.apply("a", spec(color="red", parts=[{"name": "a", "use": "x"}], tags=["t"]))
    writers.update("b", {**writers.object, "status": {"phase": "x"}}, "status")
    stored = {"metadata": {"managedFields": encode_shares(writers.shares)}}
    assert decode_shares(stored) == writers.shares


STEPS = st.lists(st.tuples(st.sampled_from(["apply", "force", "update"]), st.sampled_from("abc"), OBJECTS), max_size=8)


@given(STEPS)
def test_all_owned_fields_exist(steps: list[tuple[str, str, dict[str, Any]]]) -> None:
    writers = Writers()
    for step in steps:
        write(writers, *step)
        there = compare({}, writers.object, SHAPE).added
        assert all(share.fields <= there for share in writers.shares.values())


@given(STEPS, OBJECTS)
def test_a_repeated_apply_changes_nothing(steps: list[tuple[str, str, dict[str, Any]]], config: dict[str, Any]) -> None:
    writers = Writers()
    for step in steps:
        write(writers, *step)
    writers.apply("a", config, force=True)
    assert not compare(writers.object, overlaid(writers.object, config), SHAPE).modified
    there, shares = writers.object, writers.shares
    writers.apply("a", config)
    assert (writers.object, writers.shares) == (there, shares)


@given(STEPS, OBJECTS)
def test_an_apply_without_force_takes_no_fields_from_others(
    steps: list[tuple[str, str, dict[str, Any]]], config: dict[str, Any]
) -> None:
    writers = Writers()
    for step in steps:
        write(writers, *step)
    before = dict(writers.shares)
    if not write(writers, "apply", "new", config):
        return
    for key, share in before.items():
        assert writers.shares[key].fields == share.fields


def write(writers: Writers, how: str, name: str, body: dict[str, Any]) -> bool:
    """Writes an object; returns whether the write was accepted."""
    if how == "update":
        writers.update(name, body)
        return True
    try:
        writers.apply(name, body, force=how == "force")
    except RefusedError:
        return False
    return True


def overlaid(there: Any, config: Any) -> Any:
    """Merges the leaves of a configuration into an object, for mappings only."""
    if not isinstance(there, Mapping) or not isinstance(config, Mapping):
        return there if isinstance(config, list) else config
    return {**there, **{name: overlaid(there.get(name), value) for name, value in config.items()}}

"""The store keeps objects with their history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.apiserver.store import Store

THINGS = "things"


def put(store: Store, name: str, value: int = 0) -> int:
    store.put(THINGS, ("", name), {"metadata": {"name": name}, "value": value})
    return store.revision


def state(store: Store, revision: int) -> dict[str, int]:
    return {stored.key[1]: stored.object["value"] for stored in store.all_at(THINGS, revision)}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=20))
def test_each_kept_revision_can_be_listed(steps: list[tuple[str, int]]) -> None:
    store, revisions, now = Store(), dict[int, dict[str, int]](), dict[str, int]()
    for name, value in steps:
        if value or name not in now:
            put(store, name, value)
            now[name] = value
        else:
            store.remove(THINGS, ("", name))
            del now[name]
        revisions[store.revision] = dict(now)
    assert len(revisions) == len(steps)
    assert all(state(store, revision) == seen for revision, seen in revisions.items())


def test_a_revision_before_the_history_was_dropped_is_expired() -> None:
    store = Store()
    before = put(store, "a")
    store.forget_history()
    with pytest.raises(RefusedError, match=f"too old resource version: {before}") as refused:
        store.changes_since(THINGS, before)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    assert store.changes_since(THINGS, store.revision) == []
    with pytest.raises(RefusedError):
        store.changes_since("later", before)


def test_the_oldest_changes_are_dropped_first() -> None:
    store = Store()
    first = put(store, "a")
    for value in range(5000):
        last = put(store, "a", value)
    assert len(store.changes_since(THINGS, last - 100)) == 100
    with pytest.raises(RefusedError):
        store.changes_since(THINGS, first)

"""Objects with their history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.apiserver.store import Change, Store

THINGS = "things"


def put(store: Store, name: str, value: int = 0) -> int:
    store.put(THINGS, ("", name), {"metadata": {"name": name}, "value": value})
    return store.revision


def state(store: Store, revision: int) -> dict[str, int]:
    return {one.key[1]: one.object["value"] for one in store.all_at(THINGS, revision)}


def test_each_change_has_a_revision_that_its_object_bears() -> None:
    store = Store()
    first, second = put(store, "a"), put(store, "a", 1)
    stored = store.get(THINGS, ("", "a"))
    assert stored is not None
    assert second == first + 1 == int(stored.object["metadata"]["resourceVersion"])


def test_a_deletion_is_heard_with_its_own_revision() -> None:
    store, heard = Store(), list[tuple[str, Change]]()
    put(store, "a")
    store.listeners.append(lambda storage, change: heard.append((storage, change)))
    store.remove(THINGS, ("", "a"))
    ((storage, change),) = heard
    assert (storage, change.type, store.get(THINGS, ("", "a"))) == (THINGS, "DELETED", None)
    assert int(change.now.object["metadata"]["resourceVersion"]) == change.revision == store.revision


def test_objects_are_listed_in_the_order_of_their_keys() -> None:
    store = Store()
    for key in [("b", "a"), ("a", "b"), ("a", "a")]:
        store.put(THINGS, key, {"metadata": {"namespace": key[0], "name": key[1]}})
    assert [one.key for one in store.all(THINGS)] == [("a", "a"), ("a", "b"), ("b", "a")]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=20))
def test_every_moment_that_is_remembered_can_be_seen_again(steps: list[tuple[str, int]]) -> None:
    store, moments, now = Store(), dict[int, dict[str, int]](), dict[str, int]()
    for name, value in steps:
        if value or name not in now:
            put(store, name, value)
            now[name] = value
        else:
            store.remove(THINGS, ("", name))
            del now[name]
        moments[store.revision] = dict(now)
    assert all(state(store, revision) == seen for revision, seen in moments.items())


def test_a_history_that_is_forgotten_is_expired() -> None:
    store = Store()
    before = put(store, "a")
    store.forget_history()
    with pytest.raises(RefusedError, match=f"too old resource version: {before}") as refused:
        store.changes_since(THINGS, before)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    assert store.changes_since(THINGS, store.revision) == []
    assert store.changes_since("others", store.revision) == []


def test_what_is_forgotten_is_forgotten_for_resources_that_come_later() -> None:
    store = Store()
    store.forget_history()
    with pytest.raises(RefusedError):
        store.changes_since("others", 1)


def test_a_revision_from_another_life_is_expired_too() -> None:
    with pytest.raises(RefusedError):
        Store().changes_since(THINGS, 1000)


def test_the_oldest_changes_are_forgotten_first() -> None:
    store = Store()
    first = put(store, "a")
    for value in range(5000):
        last = put(store, "a", value)
    assert len(store.changes_since(THINGS, last - 100)) == 100
    with pytest.raises(RefusedError):
        store.changes_since(THINGS, first)

"""The records of what the operator knows, when versions of objects arrive in any order."""

from typing import Any

from fleets import cpu_node

from dracpu_operator.known.fleet import Fleet


def raw(name: str = "n1", uid: str = "u1", version: int = 1, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version), "labels": labels}}


def has_changed(fleet: Fleet) -> bool:
    changed = fleet.changed.is_set()
    fleet.changed.clear()
    return changed


def test_only_changes_of_fields_that_decisions_use_are_signalled() -> None:
    fleet = Fleet()
    fleet.store_node(raw())
    assert has_changed(fleet)
    fleet.store_node(raw(version=2))  # a heartbeat
    assert not has_changed(fleet)
    fleet.store_node(raw(version=3, pool="x"))
    assert has_changed(fleet)


def test_an_older_version_does_not_replace_a_newer_one() -> None:
    fleet = Fleet()
    fleet.store_node(raw(version=5, pool="new"))
    fleet.store_node(raw(version=4, pool="old"))
    assert fleet.nodes["n1"].labels == {"pool": "new"}


def test_the_deletion_of_a_former_object_does_not_touch_the_present_one() -> None:
    fleet = Fleet()
    fleet.store_node(raw(uid="u2", version=9))
    fleet.remove_node("n1", "u1")
    assert fleet.nodes["n1"].uid == "u2"
    fleet.remove_node("n1", "u2")
    assert fleet.nodes == {}


def test_a_complete_list_removes_what_is_gone_and_keeps_what_came_meanwhile() -> None:
    fleet = Fleet()
    for name in ("gone", "stays"):
        fleet.store_node(raw(name, f"u-{name}"))
    known = list(fleet.nodes.values())
    fleet.store_node(raw("new", "u-new"))  # while the list was on its way
    fleet.recheck_nodes(known, [raw("stays", "u-stays")])
    assert set(fleet.nodes) == {"stays", "new"}


def test_cpu_nodes_whose_listed_metadata_differ_are_read_again() -> None:
    fleet = Fleet()
    fleet.cpu_nodes = {name: cpu_node(name, generation=2) for name in ("same", "changed", "gone")}
    listed = [
        {"metadata": {"name": "same", "uid": "cpu-same", "generation": 2, "resourceVersion": "8"}},
        {"metadata": {"name": "changed", "uid": "cpu-changed", "generation": 3, "resourceVersion": "9"}},
        {"metadata": {"name": "unknown", "uid": "cpu-unknown", "generation": 1, "resourceVersion": "1"}},
    ]
    fleet.recheck_cpu_nodes(list(fleet.cpu_nodes.values()), listed)
    assert fleet.to_read_again == {"changed", "unknown"}
    assert set(fleet.cpu_nodes) == {"same", "changed"}


def test_the_time_since_a_node_was_seen_is_measured() -> None:
    now = [100.0]
    fleet = Fleet(clock=lambda: now[0])
    fleet.store_node(raw())
    now[0] = 107.0
    assert fleet.seconds_since_seen("n1") == 7.0


def test_an_older_version_of_a_former_object_does_not_replace_the_present_one() -> None:
    fleet = Fleet()
    fleet.store_node(raw(uid="u2", version=9))
    fleet.store_node(raw(uid="u1", version=5))  # a list from before the node came back
    assert fleet.nodes["n1"].uid == "u2"


def test_an_object_that_was_deleted_during_a_list_stays_deleted() -> None:
    fleet = Fleet()
    fleet.store_node(raw())
    known = list(fleet.nodes.values())
    fleet.remove_node("n1", "u1")
    fleet.recheck_nodes(known, [raw()])
    assert fleet.nodes == {}


def test_a_node_that_was_created_again_during_a_list_stays() -> None:
    fleet = Fleet()
    fleet.store_node(raw())
    known = list(fleet.nodes.values())
    fleet.remove_node("n1", "u1")
    fleet.store_node(raw(uid="u2", version=7))
    fleet.recheck_nodes(known, [raw()])
    assert fleet.nodes["n1"].uid == "u2"


def test_a_list_with_an_older_version_than_was_known_before_shows_that_everything_is_outdated() -> None:
    fleet = Fleet()
    fleet.store_node(raw(version=7))
    known = list(fleet.nodes.values())
    fleet.store_node(raw(version=9))  # while the list was on its way
    fleet.recheck_nodes(known, [raw(version=7)])
    assert not fleet.outdated.is_set()
    fleet.recheck_nodes(list(fleet.nodes.values()), [raw(version=8)])
    assert fleet.outdated.is_set()

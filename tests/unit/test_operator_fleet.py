"""The records of what the operator knows, when versions of objects arrive in any order."""

import asyncio
from typing import Any

from agent_pods import READY, pod, status
from hypothesis import given
from hypothesis import strategies as st

from dracpu_operator.decide.records import Node
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.read import read_node
from dracpu_operator.known.tables import Table


def raw(name: str = "n1", uid: str = "u1", version: int = 1, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version), "labels": labels}}


def agent_pod(name: str, node: str = "n1", version: int = 1, *, ready: bool = True, **others: Any) -> dict[str, Any]:
    body = pod(name, node, uid=f"u-{name}", resourceVersion=str(version), **others)
    return {**body, "status": status(READY, ready=ready)}


def has_changed(fleet: Fleet) -> bool:
    changed = fleet.changed.is_set()
    fleet.changed.clear()
    return changed


def test_only_changes_of_fields_that_decisions_use_are_signalled() -> None:
    fleet = Fleet()
    fleet.node_table.store(raw())
    assert has_changed(fleet)
    fleet.node_table.store(raw(version=2))  # a heartbeat
    assert not has_changed(fleet)
    fleet.node_table.store(raw(version=3, pool="x"))
    assert has_changed(fleet)


def test_an_older_version_does_not_replace_a_newer_one() -> None:
    fleet = Fleet()
    fleet.node_table.store(raw(version=5, pool="new"))
    fleet.node_table.store(raw(version=4, pool="old"))
    assert fleet.nodes["n1"].labels == {"pool": "new"}


def test_the_deletion_of_a_former_object_does_not_touch_the_present_one() -> None:
    fleet = Fleet()
    fleet.node_table.store(raw(uid="u2", version=9))
    fleet.node_table.remove("n1", "u1", 8)
    assert fleet.nodes["n1"].uid == "u2"
    fleet.node_table.remove("n1", "u2", 10)
    assert fleet.nodes == {}


def test_a_complete_list_removes_what_is_gone_and_keeps_what_is_newer() -> None:
    fleet = Fleet()
    for name in ("gone", "stays"):
        fleet.node_table.store(raw(name, f"u-{name}"))
    fleet.node_table.store(raw("new", "u-new", version=6))  # while the list was on its way
    fleet.node_table.recheck({"u-stays": 1}, 5)
    assert set(fleet.nodes) == {"stays", "new"}


def test_the_time_since_a_node_was_seen_is_measured() -> None:
    now = [100.0]
    fleet = Fleet(clock=lambda: now[0])
    fleet.node_table.store(raw())
    now[0] = 107.0
    assert fleet.seconds_since_seen("n1") == 7.0


def test_an_older_version_of_a_former_object_does_not_replace_the_present_one() -> None:
    fleet = Fleet()
    fleet.node_table.store(raw(uid="u2", version=9))
    fleet.node_table.store(raw(uid="u1", version=5))  # a list from before the node came back
    assert fleet.nodes["n1"].uid == "u2"


def test_an_object_that_is_gone_stays_gone_when_an_older_version_of_it_arrives_late() -> None:
    """As the answer to a write that was carried out just before the deletion."""
    fleet = Fleet()
    fleet.node_table.store(raw())
    fleet.node_table.remove("n1", "u1", 7)
    fleet.node_table.store(raw(version=6))
    assert fleet.nodes == {}


def test_an_unknown_object_in_a_version_that_was_shown_already_was_deleted_since_then() -> None:
    """As the answer to the creation of an object that was deleted before a list."""
    fleet = Fleet()
    fleet.cpu_node_table.recheck({}, 9)
    fleet.cpu_node_table.advance(9)
    fleet.store_cpu_node(raw(version=8))
    assert fleet.cpu_nodes == {}
    fleet.store_cpu_node(raw(version=10))
    assert set(fleet.cpu_nodes) == {"n1"}


def test_an_answer_completes_what_a_watch_has_shown_by_an_older_schema() -> None:
    fleet = Fleet()
    whole = raw(version=5)
    whole["spec"] = {"config": {"name": "all", "generation": 1}, "revision": "r", "settings": {"parkIdle": True}}
    pruned = {**whole, "spec": {**whole["spec"], "settings": {}}}
    fleet.cpu_node_table.store(pruned, watched=True)
    known = fleet.cpu_nodes["n1"]
    fleet.changed.clear()
    fleet.store_cpu_node(whole)
    assert fleet.cpu_nodes["n1"] != known
    assert fleet.changed.is_set()
    fleet.cpu_node_table.store(pruned, watched=True)
    assert fleet.cpu_nodes["n1"] != known, "a late event shows less of the same version"


def test_an_event_about_what_an_own_write_has_returned_is_not_decoded() -> None:
    decoded = []

    def read(body: Any) -> Node:
        decoded.append(body["metadata"]["resourceVersion"])
        return read_node(body)

    table = Table(read, lambda: None, asyncio.Event())
    for version in (4, 4, 3, 5):
        table.store(raw(version=version))
    assert decoded == ["4", "5"]


def test_an_object_that_the_selector_selects_again_comes_back() -> None:
    fleet = Fleet()
    fleet.agent_pods.store(agent_pod("a", version=3))
    fleet.agent_pods.remove("a", "u-a", 4)  # a watch shows an object that lost the label as deleted
    fleet.agent_pods.store(agent_pod("a", version=5))
    assert set(fleet.agents) == {"n1"}


def test_a_list_in_which_an_object_has_an_older_version_than_before_shows_that_everything_is_outdated() -> None:
    fleet = Fleet()
    fleet.node_table.store(raw(version=9))
    fleet.node_table.recheck({"u1": 7}, 8)  # the record is newer than the list
    assert not fleet.outdated.is_set()
    fleet.node_table.recheck({"u1": 7}, 10)
    assert fleet.outdated.is_set()


def test_a_node_has_the_state_of_its_newest_pod_that_is_not_ending() -> None:
    fleet = Fleet()
    ending: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
    fleet.agent_pods.store(agent_pod("old", created="2026-01-01T00:00:00Z"))
    fleet.agent_pods.store(agent_pod("new", ready=False, created="2026-01-02T00:00:00Z"))
    assert fleet.agents["n1"].uid == "u-new"
    fleet.agent_pods.store(agent_pod("new", version=2, created="2026-01-02T00:00:00Z", **ending))
    assert fleet.agents["n1"].uid == "u-old"
    fleet.agent_pods.remove("old", "u-old", 3)
    assert (fleet.agents["n1"].uid, fleet.agents["n1"].reason) == ("u-new", "Terminating")
    fleet.agent_pods.remove("new", "u-new", 4)
    assert fleet.agents == {}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "n1", "n2"]), st.booleans(), st.booleans())))
def test_each_node_has_the_state_of_one_of_its_pods_whatever_comes_and_goes(
    changes: list[tuple[str, str, bool, bool]],
) -> None:
    """A pod has no node until it is known where it is to run, then keeps it."""
    fleet = Fleet()
    for version, (name, node, is_ending, is_gone) in enumerate(changes, 1):
        known = fleet.agent_pods.records.get(name)
        if known is not None and is_gone:
            fleet.agent_pods.remove(name, known.uid, version)
        else:
            ending: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:30Z"} if is_ending else {}
            created = "2026-01-01T00:00:00Z" if known is None else known.created
            body = agent_pod(name, node, version, created=created, **ending)
            fleet.agent_pods.store({**body, "metadata": {**body["metadata"], "uid": f"u-{name}-{version}"}})
    pods = [pod for pod in fleet.agent_pods.records.values() if pod.node]
    assert set(fleet.agents) == {pod.node for pod in pods}
    for node, agent in fleet.agents.items():
        own = [pod for pod in pods if pod.node == node]
        assert agent in [pod.agent for pod in own]
        assert any(pod.agent is agent and not pod.ending for pod in own) or all(pod.ending for pod in own)


def test_a_pod_counts_for_its_node_before_it_is_scheduled_there() -> None:
    fleet = Fleet()
    fleet.agent_pods.store({**pod("a", "n7", scheduled=False, uid="u", resourceVersion="1"), "status": {}})
    assert set(fleet.agents) == {"n7"}


def test_agents_are_known_while_both_the_pods_and_the_daemon_set_are_followed() -> None:
    fleet = Fleet()
    fleet.agent_pods.store(agent_pod("a"))
    known = []
    for change in (
        lambda: fleet.agent_pods.recheck({"u-a": 1}, 1),
        lambda: fleet.agent_daemon_sets.recheck({}, 1),
        fleet.agent_pods.lose,
    ):
        change()
        known.append(fleet.follows_agents)
    assert known == [False, True, False]
    assert fleet.agents == {}


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, str, str]]:
    """What happened to two names, in order: (version, name, UID of the object from then on, or "" when it is gone)."""
    present, history = {"a": "", "b": ""}, []
    for version in range(1, draw(st.integers(2, 12))):
        name = draw(st.sampled_from(["a", "b"]))
        created = f"{name}{version}"
        present[name] = draw(st.sampled_from([present[name], created, ""])) if present[name] else created
        history.append((version, name, present[name]))
    return history


@given(histories(), st.data())
def test_lists_a_watch_and_answers_in_any_order_end_with_the_newest_state(
    history: list[tuple[int, str, str]], data: st.DataObject
) -> None:
    """The watch shows all changes in order. Answers to own writes and a list of any moment arrive somewhere between
    its events, answers also after the last one."""
    fleet = Fleet()
    table = fleet.node_table
    states: list[dict[str, tuple[str, int]]] = [{}]  # after each version: UID and version by name
    for version, name, uid in history:
        after = dict(states[-1])
        after.pop(name, None)
        if uid:
            after[name] = (uid, version)
        states.append(after)
    for position, (version, name, uid) in enumerate(history):
        before = states[position].get(name)
        if before is not None and before[0] != uid:
            table.remove(name, before[0], version)
        if uid:
            table.store(raw(name, uid, version))
        table.advance(version)
        for _ in range(data.draw(st.integers(0, 2))):
            late = data.draw(st.integers(0, len(history)))
            if data.draw(st.booleans()) and late:  # the answer to a write, of which the watch shows the result sometime
                wrote, name_written, uid_written = history[late - 1]
                if uid_written:
                    table.store(raw(name_written, uid_written, wrote))
            elif late >= position:  # a list shows at least what the watch has shown before its request
                listed = states[late]
                for name_listed, (uid_listed, at) in listed.items():
                    table.store(raw(name_listed, uid_listed, at))
                table.recheck(dict(listed.values()), late)
                table.advance(late)
    found = {name: (record.uid, record.version) for name, record in table.records.items()}
    assert found == states[-1]
    assert not fleet.outdated.is_set()

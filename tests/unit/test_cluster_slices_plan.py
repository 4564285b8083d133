"""Plans of slice writes converge from anything, after any interruption, and no reader ever sees a mixture."""

import copy
import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.cluster.slices.plan import (
    Adoption,
    CreateSlice,
    DeleteSlice,
    Operation,
    Pool,
    ReplaceSlice,
    devices_of,
    plan,
    plan_withdrawal,
)

POOL = Pool("dra.cpu", "n1", "uid-of-n1")
FOREIGN: dict[str, Any] = {
    "metadata": {"name": "00000-other-n1-x", "uid": "f", "resourceVersion": "1"},
    "spec": {"driver": "other", "nodeName": "n1", "pool": {"name": "n1", "generation": 99, "resourceSliceCount": 1}},
}


class Server:
    """Just enough of an API server to carry out plans."""

    def __init__(self, slices: list[dict[str, Any]]) -> None:
        self._numbers = itertools.count(1000)
        self.slices = {one["metadata"]["name"]: one for one in slices}

    def carry_out(self, operation: Operation) -> None:
        match operation:
            case DeleteSlice(name, uid, resource_version):
                metadata = self.slices.pop(name)["metadata"]
                assert (metadata["uid"], metadata["resourceVersion"]) == (uid, resource_version)
            case ReplaceSlice(body):
                metadata = self.slices[body["metadata"]["name"]]["metadata"]
                assert metadata["resourceVersion"] == body["metadata"]["resourceVersion"]
                self._store(metadata["name"], metadata["uid"], body)
            case CreateSlice(body):
                number = next(self._numbers)
                # the suffix is random: let later ones sort before earlier ones
                self._store(f"{body['metadata']['generateName']}{9999 - number}", f"uid-{number}", body)

    def _store(self, name: str, uid: str, body: dict[str, Any]) -> None:
        stored = copy.deepcopy(body)
        stored["metadata"] |= {"name": name, "uid": uid, "resourceVersion": str(next(self._numbers))}
        self.slices[name] = stored

    def converge(self, devices: list[dict[str, Any]]) -> None:
        """One whole plan must do."""
        for operation in plan(POOL, devices, list(self.slices.values())):
            self.carry_out(operation)
        assert plan(POOL, devices, list(self.slices.values())) == []

    def offer(self) -> list[dict[str, Any]] | None:
        """The pool as a scheduler sees it; None: incomplete."""
        ours = [self.slices[name] for name in sorted(self.slices) if name != FOREIGN["metadata"]["name"]]
        highest = max((one["spec"]["pool"]["generation"] for one in ours), default=0)
        newest = [one for one in ours if one["spec"]["pool"]["generation"] == highest]
        if not any(one["spec"]["pool"]["resourceSliceCount"] == len(newest) for one in newest):
            return None
        return [device for one in newest for device in devices_of(one)]


def devices(*numbers: int, mark: int = 0) -> list[dict[str, Any]]:
    return [{"name": f"cpudev{n:03d}", "attributes": {"dra.cpu/mark": {"int": mark}}} for n in numbers]


# what may be wanted: nothing, a few, exactly a slice, more; the mark makes every slice differ, or none
wanted = st.builds(
    lambda count, mark, marked: devices(*range(count)) if not marked else devices(*range(count), mark=mark),
    st.sampled_from([0, 1, 3, 64, 65, 128, 130, 200]),
    st.integers(0, 2),
    st.booleans(),
)


@st.composite
def leftovers(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Slices as crashes, older versions and other people might have left them."""
    slices = []
    for number in range(draw(st.integers(0, 6))):
        prefix = draw(st.sampled_from(["00000-", "00001-", "00002-", "0000a-", "", "zz-"]))
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "controller": True}
        owner["uid"] = draw(st.sampled_from([POOL.node_uid, "uid-of-a-former-n1"]))
        slices.append(
            {
                "metadata": {
                    "name": f"{prefix}dra.cpu-n1-{number}",
                    "uid": f"u{number}",
                    "resourceVersion": str(number + 1),
                    "ownerReferences": [owner],
                },
                "spec": {
                    "driver": "dra.cpu",
                    "nodeName": "n1",
                    "pool": {
                        "name": draw(st.sampled_from(["n1", "n1", "other-pool"])),
                        "generation": draw(st.integers(0, 3)),
                        "resourceSliceCount": draw(st.integers(1, 3)),
                    },
                    "devices": draw(wanted)[:64],
                },
            }
        )
    return slices


@given(leftovers(), wanted, st.integers(0, 12), wanted)
def test_from_anything_and_after_any_interruption_one_plan_leads_to_the_wanted_pool(
    existing: list[dict[str, Any]], first: list[dict[str, Any]], steps: int, then: list[dict[str, Any]]
) -> None:
    server = Server([*existing, FOREIGN])
    for operation in plan(POOL, first, list(server.slices.values()))[:steps]:
        server.carry_out(operation)
    server.converge(then)

    assert server.slices.pop(FOREIGN["metadata"]["name"]) == FOREIGN
    slices = [server.slices[name] for name in sorted(server.slices)]
    assert [device for one in slices for device in devices_of(one)] == then  # complete, no duplicates, in order
    assert len({one["spec"]["pool"]["generation"] for one in slices}) == 1
    assert all(one["spec"]["pool"]["resourceSliceCount"] == len(slices) for one in slices)
    assert all(len(devices_of(one)) <= 64 for one in slices)
    assert all(one["metadata"]["ownerReferences"][0]["uid"] == POOL.node_uid for one in slices)


@given(st.lists(wanted, min_size=2, max_size=4), st.data())
def test_a_complete_pool_is_always_one_that_was_wanted(states: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    server = Server([])
    server.converge(states[0])
    for state in states[1:]:
        operations = plan(POOL, state, list(server.slices.values()))
        for operation in operations[: data.draw(st.integers(0, len(operations)))]:
            server.carry_out(operation)
            offer = server.offer()
            assert offer is None or offer in states


def test_the_first_pool_begins_with_generation_1_and_sortable_names() -> None:
    creations = plan(POOL, devices(*range(70)), [])
    bodies = [operation.body for operation in creations if isinstance(operation, CreateSlice)]
    assert [body["metadata"]["generateName"] for body in bodies] == ["00000-dra.cpu-n1-", "00001-dra.cpu-n1-"]
    assert [len(body["spec"]["devices"]) for body in bodies] == [64, 6]
    assert [body["spec"]["pool"] for body in bodies] == [{"name": "n1", "generation": 1, "resourceSliceCount": 2}] * 2


def test_no_devices_are_an_empty_slice_without_the_key() -> None:
    (creation,) = plan(POOL, [], [])
    assert isinstance(creation, CreateSlice)
    assert "devices" not in creation.body["spec"]


def test_one_changed_slice_keeps_the_generation() -> None:
    server = Server([])
    server.converge(devices(*range(70)))
    changed = devices(*range(69)) + devices(69, mark=1)
    (replacement,) = plan(POOL, changed, list(server.slices.values()))
    assert isinstance(replacement, ReplaceSlice)
    assert replacement.body["spec"]["pool"]["generation"] == 1


def test_several_changed_slices_get_the_next_generation_all_of_them() -> None:
    server = Server([])
    server.converge(devices(*range(130)))
    operations = plan(POOL, devices(*range(128), mark=1) + devices(128, 129), list(server.slices.values()))
    assert [type(operation) for operation in operations] == [ReplaceSlice] * 3
    assert {one.body["spec"]["pool"]["generation"] for one in operations if isinstance(one, ReplaceSlice)} == {2}


def test_of_two_slices_with_one_index_the_newer_generation_stays() -> None:
    server = Server([])
    server.converge(devices(0))
    (newer,) = copy.deepcopy(list(server.slices.values()))
    older = copy.deepcopy(newer)
    newer["metadata"] |= {"name": "00000-dra.cpu-n1-zzzzz", "uid": "newer"}
    newer["spec"]["pool"]["generation"] = 2
    (deletion,) = plan(POOL, devices(0), [older, newer])
    assert isinstance(deletion, DeleteSlice)
    assert deletion.uid == older["metadata"]["uid"]


def test_the_time_of_a_taint_is_neither_a_change_nor_lost_in_a_rewrite() -> None:
    taint = {"key": "dra.cpu/settling", "effect": "NoSchedule"}
    tainted = [device | {"taints": [taint]} for device in devices(0, 1)]
    server = Server([])
    server.converge(tainted)
    (stored,) = server.slices.values()
    for device in stored["spec"]["devices"]:
        device["taints"] = [taint | {"timeAdded": "2026-01-01T00:00:00Z"}]
    assert plan(POOL, tainted, [stored]) == []

    (replacement,) = plan(POOL, [tainted[0]], [stored])
    assert isinstance(replacement, ReplaceSlice)
    assert replacement.body["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-01-01T00:00:00Z"


def test_what_the_server_stored_otherwise_is_no_change_once_it_is_adopted() -> None:
    server = Server([])
    server.converge(devices(0))
    (stored,) = server.slices.values()
    stored["spec"]["devices"] = [{"name": "cpudev000"}]
    assert plan(POOL, devices(0), [stored]) != []
    assert plan(POOL, devices(0), [stored], [Adoption(devices(0), [{"name": "cpudev000"}])]) == []


def test_a_withdrawal_deletes_own_slices_only() -> None:
    server = Server([])
    server.converge(devices(*range(70)))
    operations = plan_withdrawal(POOL, [*server.slices.values(), FOREIGN])
    assert sorted(one.name for one in operations if isinstance(one, DeleteSlice)) == sorted(server.slices)

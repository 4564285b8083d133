"""Plans of slice writes lead from any state to the desired one, and readers never see a mixture of states."""

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
    share_equal,
    slice_of,
)

POOL = Pool("dra.cpu", "n1", "uid-of-n1")
FOREIGN: dict[str, Any] = {
    "metadata": {"name": "00000-other-n1-x", "uid": "f", "resourceVersion": "1"},
    "spec": {"driver": "other", "nodeName": "n1", "pool": {"name": "n1", "generation": 99, "resourceSliceCount": 1}},
}


class Server:
    """A minimal API server that executes plans."""

    def __init__(self, slices: list[dict[str, Any]]) -> None:
        self._numbers = itertools.count(1000)
        self.slices = {existing["metadata"]["name"]: existing for existing in slices}

    def execute(self, operation: Operation) -> None:
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
                # the suffix is random: here later slices sort before earlier ones
                self._store(f"{body['metadata']['generateName']}{9999 - number}", f"uid-{number}", body)

    def _store(self, name: str, uid: str, body: dict[str, Any]) -> None:
        stored = copy.deepcopy(body)
        stored["metadata"] |= {"name": name, "uid": uid, "resourceVersion": str(next(self._numbers))}
        self.slices[name] = stored

    def converge(self, devices: list[dict[str, Any]]) -> None:
        """Executes one plan; the next one must be empty."""
        for operation in plan(POOL, devices, list(self.slices.values())):
            self.execute(operation)
        assert plan(POOL, devices, list(self.slices.values())) == []

    def offer(self) -> list[dict[str, Any]] | None:
        """The devices that a scheduler can use; None if the pool is incomplete."""
        ours = [self.slices[name] for name in sorted(self.slices) if name != FOREIGN["metadata"]["name"]]
        highest = max((stored["spec"]["pool"]["generation"] for stored in ours), default=0)
        newest = [stored for stored in ours if stored["spec"]["pool"]["generation"] == highest]
        if not any(stored["spec"]["pool"]["resourceSliceCount"] == len(newest) for stored in newest):
            return None
        return [device for stored in newest for device in devices_of(stored)]


def devices(*numbers: int, mark: int = 0) -> list[dict[str, Any]]:
    return [{"name": f"cpudev{n:03d}", "attributes": {"dra.cpu/mark": {"int": mark}}} for n in numbers]


# nothing, a few devices, exactly a slice, more; another mark makes every slice differ
desired = st.builds(
    lambda count, mark, marked: devices(*range(count)) if not marked else devices(*range(count), mark=mark),
    st.sampled_from([0, 1, 3, 64, 65, 128, 130, 200]),
    st.integers(0, 2),
    st.booleans(),
)


@st.composite
def leftovers(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Slices as crashes, older versions and other clients may leave them."""
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
                    "devices": draw(desired)[:64],
                },
            }
        )
    return slices


@given(leftovers(), desired, st.integers(0, 12), desired)
def test_one_plan_leads_from_any_state_and_after_any_interruption_to_the_desired_pool(
    existing: list[dict[str, Any]], first: list[dict[str, Any]], steps: int, then: list[dict[str, Any]]
) -> None:
    server = Server([*existing, FOREIGN])
    for operation in plan(POOL, first, list(server.slices.values()))[:steps]:
        server.execute(operation)
    server.converge(then)

    assert server.slices.pop(FOREIGN["metadata"]["name"]) == FOREIGN
    slices = [server.slices[name] for name in sorted(server.slices)]
    assert [device for stored in slices for device in devices_of(stored)] == then  # complete, no duplicates, in order
    assert len({stored["spec"]["pool"]["generation"] for stored in slices}) == 1
    assert all(stored["spec"]["pool"]["resourceSliceCount"] == len(slices) for stored in slices)
    assert all(len(devices_of(stored)) <= 64 for stored in slices)
    assert all(stored["metadata"]["ownerReferences"][0]["uid"] == POOL.node_uid for stored in slices)


@given(st.lists(desired, min_size=2, max_size=4), st.data())
def test_a_complete_pool_always_equals_a_desired_one(states: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    server = Server([])
    server.converge(states[0])
    for state in states[1:]:
        operations = plan(POOL, state, list(server.slices.values()))
        for operation in operations[: data.draw(st.integers(0, len(operations)))]:
            server.execute(operation)
            offer = server.offer()
            assert offer is None or offer in states


def test_the_first_pool_has_generation_1_and_names_in_the_order_of_its_slices() -> None:
    creations = plan(POOL, devices(*range(70)), [])
    bodies = [operation.body for operation in creations if isinstance(operation, CreateSlice)]
    assert [body["metadata"]["generateName"] for body in bodies] == ["00000-dra.cpu-n1-", "00001-dra.cpu-n1-"]
    assert [len(body["spec"]["devices"]) for body in bodies] == [64, 6]
    assert [body["spec"]["pool"] for body in bodies] == [{"name": "n1", "generation": 1, "resourceSliceCount": 2}] * 2


def test_without_devices_there_is_a_slice_without_the_key() -> None:
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


def test_when_several_slices_change_all_get_the_next_generation() -> None:
    server = Server([])
    server.converge(devices(*range(130)))
    operations = plan(POOL, devices(*range(128), mark=1) + devices(128, 129), list(server.slices.values()))
    assert [type(operation) for operation in operations] == [ReplaceSlice] * 3
    replacements = [operation for operation in operations if isinstance(operation, ReplaceSlice)]
    assert {replacement.body["spec"]["pool"]["generation"] for replacement in replacements} == {2}


def test_of_two_slices_with_the_same_index_the_newer_generation_is_kept() -> None:
    server = Server([])
    server.converge(devices(0))
    (newer,) = copy.deepcopy(list(server.slices.values()))
    older = copy.deepcopy(newer)
    newer["metadata"] |= {"name": "00000-dra.cpu-n1-zzzzz", "uid": "newer"}
    newer["spec"]["pool"]["generation"] = 2
    (deletion,) = plan(POOL, devices(0), [older, newer])
    assert isinstance(deletion, DeleteSlice)
    assert deletion.uid == older["metadata"]["uid"]


def test_the_time_of_a_taint_is_not_a_change_and_is_kept_in_a_rewrite() -> None:
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


def test_devices_that_the_server_changed_are_not_written_again_once_adopted() -> None:
    server = Server([])
    server.converge(devices(0))
    (stored,) = server.slices.values()
    stored["spec"]["devices"] = [{"name": "cpudev000"}]
    assert plan(POOL, devices(0), [stored]) != []
    assert plan(POOL, devices(0), [stored], [Adoption(devices(0), [{"name": "cpudev000"}])]) == []


def test_a_withdrawal_deletes_only_the_pools_slices() -> None:
    server = Server([])
    server.converge(devices(*range(70)))
    operations = plan_withdrawal(POOL, [*server.slices.values(), FOREIGN])
    assert sorted(deletion.name for deletion in operations if isinstance(deletion, DeleteSlice)) == sorted(
        server.slices
    )


def test_stored_devices_are_held_in_memory_once_when_they_equal_the_desired_ones() -> None:
    desired = devices(0, 1, 2)
    stored = slice_of(POOL, [*copy.deepcopy(desired[:2]), *devices(2, mark=1)])
    expected = copy.deepcopy(stored)
    share_equal(desired, [stored])
    assert stored == expected
    assert [found is ours for found, ours in zip(stored["spec"]["devices"], desired, strict=True)] == [
        True,
        True,
        False,
    ]

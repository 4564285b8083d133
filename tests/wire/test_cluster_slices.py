"""The slice controller against an API server that misbehaves as real ones and their other clients do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from background import background
from fake_api import FakeApi

from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.slices.controller import SliceController, SlicesState, SliceTiming
from dracpu_agent.devices.device import Capacity, Device, RequestPolicy, Taint
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.apiserver.kinds.gates import CONSUMABLE_CAPACITY, DEVICE_TAINTS, LIST_ATTRIBUTES

QUICK = SliceTiming(
    debounce=0.01, repair_first=0.02, repair_cap=0.1, calm=60.0, recheck=0.05, retry_first=0.01, retry_cap=0.05
)
PATIENT = SliceTiming(debounce=0.01, recheck=3600, retry_first=0.01, retry_cap=0.05)


def cpus(*numbers: int, **attributes: int) -> list[Device]:
    return [Device(f"cpudev{number:03d}", CpuSet([number]), attributes) for number in numbers]


def group(value: int = 32, *taints: Taint) -> list[Device]:
    policy = RequestPolicy(default=1, minimum=1, step=1)
    return [Device("cpudevnuma000", CpuSet(range(value)), {}, Capacity("dra.cpu/cpu", value, policy), taints)]


class Node:
    """A node n1, its controller and what it said."""

    def __init__(self, server: FakeApi, client: ApiClient) -> None:
        self.server = server
        self.states: list[SlicesState] = []
        self._client = client
        self._said = asyncio.Event()
        self.use(QUICK)

    def use(self, timing: SliceTiming) -> None:
        self.controller = SliceController(self._client, "dra.cpu", "n1", self._say, timing=timing)

    def _say(self, state: SlicesState) -> None:
        self.states.append(state)
        self._said.set()

    @property
    def slices(self) -> list[dict[str, Any]]:
        return self.server.all("resourceslices")

    @property
    def offered(self) -> list[str]:
        return [device["name"] for one in self.slices for device in one["spec"].get("devices", [])]

    async def published(self, *devices: Device) -> SlicesState:
        """Waits until exactly these devices are offered and the controller says so."""
        names = [device.name for device in devices]
        await self.server.until(lambda: self.offered == names)
        return await self.says(lambda state: state.published and state.devices == len(names))

    async def says(self, condition: Callable[[SlicesState], bool]) -> SlicesState:
        """Waits until the last state fulfils the condition."""
        async with asyncio.timeout(10):
            while not self.states or not condition(self.states[-1]):
                self._said.clear()
                await self._said.wait()
        return self.states[-1]


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with FakeApi() as server, ApiClient(ApiAccess(server.url), version="1", request_timeout=5) as client:
        server.add("nodes", {"metadata": {"name": "n1", "uid": "uid-1"}})
        yield Node(server, client)


async def test_devices_are_published_in_slices_of_64_that_belong_to_the_node(node: Node) -> None:
    node.controller.publish(cpus(*range(70)))
    async with background(node.controller.run()):
        state = await node.published(*cpus(*range(70)))
    assert state == SlicesState(True, 1, 70, 2, None, "Published")
    assert [one["metadata"]["name"][:17] for one in node.slices] == ["00000-dra.cpu-n1-", "00001-dra.cpu-n1-"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1", "controller": True}
    assert all(one["metadata"]["ownerReferences"] == [owner] for one in node.slices)


async def test_no_devices_are_an_empty_slice_and_a_withdrawal_is_none(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish([])
        await node.says(lambda state: state.published)
        assert [one["spec"].get("devices") for one in node.slices] == [None]
        node.controller.withdraw()
        await node.says(lambda state: state.reason == "Withdrawn")
    assert node.slices == []


async def test_before_anything_is_wanted_former_slices_stay(node: Node) -> None:
    node.server.add(
        "resourceslices", {"metadata": {"name": "00000-x"}, "spec": {"driver": "dra.cpu", "nodeName": "n1"}}
    )
    async with background(node.controller.run()):
        await node.server.until(lambda: node.server.watching)
        await node.server.settled()
    assert node.server.written() == []


async def test_a_restart_changes_nothing(node: Node) -> None:
    for _ in range(2):
        node.use(QUICK)
        node.states.clear()
        node.controller.publish(cpus(0, 1))
        async with background(node.controller.run()):
            await node.published(*cpus(0, 1))
            await node.server.settled()
    assert node.server.written() == ["POST resourceslices"]


async def test_changes_that_come_together_are_written_together(node: Node) -> None:
    node.use(SliceTiming(debounce=0.1))
    async with background(node.controller.run()):
        for count in range(1, 11):
            node.controller.publish(cpus(*range(count)))
        await node.published(*cpus(*range(10)))
    assert node.server.written() == ["POST resourceslices"]


async def test_a_watch_that_lags_leads_to_no_second_slice(node: Node) -> None:
    async with background(node.controller.run()):
        await node.server.until(lambda: node.server.watching)
        node.server.hold_watches()
        for wanted in (cpus(0), cpus(0, 1), [], cpus(2)):
            node.controller.publish(wanted)
            await node.published(*wanted)
        node.controller.withdraw()
        await node.says(lambda state: state.reason == "Withdrawn")
        assert node.slices == []
        node.server.release_watches()
        await node.server.settled()
    assert [one.split()[0] for one in node.server.written()] == ["POST", "PUT", "PUT", "PUT", "DELETE"]


async def test_other_drivers_and_other_nodes_slices_are_left_alone(node: Node) -> None:
    for name, driver, where in (("00000-a", "other", "n1"), ("00000-b", "dra.cpu", "n2")):
        pool = {"name": where, "generation": 7, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": where, "pool": pool}
        node.server.add("resourceslices", {"metadata": {"name": name}, "spec": spec})
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        state = await node.published(*cpus(0))
        node.controller.withdraw()
        await node.says(lambda state: state.reason == "Withdrawn")
    assert state.generation == 1
    assert [one["metadata"]["name"] for one in node.slices] == ["00000-a", "00000-b"]


async def test_what_the_kubelet_deletes_comes_back(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish(cpus(*range(70)))
        await node.published(*cpus(*range(70)))
        for one in node.slices:
            node.server.remove("resourceslices", one["metadata"]["name"])
        await node.published(*cpus(*range(70)))


async def test_what_somebody_edits_is_put_right(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish(cpus(0, 1))
        await node.published(*cpus(0, 1))
        node.server.edit("resourceslices", node.slices[0]["metadata"]["name"], lambda one: one["spec"]["devices"].pop())
        await node.published(*cpus(0, 1))


@pytest.mark.parametrize("by", ["a new wish", "the kubelet's registration"])
async def test_what_is_deleted_again_and_again_waits_until_the_agent_is_told(node: Node, by: str) -> None:
    node.use(SliceTiming(debounce=0.001, repair_first=3600, repair_cap=3600))
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        for _ in range(2):  # the first one comes back at once
            await node.server.until(lambda: node.slices)
            node.server.remove("resourceslices", node.slices[0]["metadata"]["name"])
        await node.server.settled()
        assert node.slices == []
        if by == "a new wish":
            node.controller.publish(cpus(1))
        else:
            node.controller.poke()
        await node.server.until(lambda: node.slices)


async def test_a_node_made_anew_owns_the_slices_made_anew(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish(cpus(*range(70)))
        await node.published(*cpus(*range(70)))
        node.server.remove("nodes", "n1")
        node.server.add("nodes", {"metadata": {"name": "n1", "uid": "uid-2"}})
        # garbage collection takes the slices one by one
        node.server.remove("resourceslices", node.slices[0]["metadata"]["name"])
        await node.server.until(
            lambda: {one["metadata"]["ownerReferences"][0]["uid"] for one in node.slices} == {"uid-2"}
        )
        await node.published(*cpus(*range(70)))


async def test_a_missing_node_is_told_and_waited_for(node: Node) -> None:
    node.server.remove("nodes", "n1")
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        state = await node.says(lambda state: state.error is not None)
        assert not state.published
        assert "nodes" in str(state.error)
        node.server.add("nodes", {"metadata": {"name": "n1"}})
        await node.published(*cpus(0))


@pytest.mark.parametrize("what", ["GET resourceslices", "GET nodes", "POST resourceslices", "WATCH"])
@pytest.mark.parametrize("code", [403, 409, 500, 503])
async def test_passing_errors_are_outlived(node: Node, what: str, code: int) -> None:
    node.server.fail(what, code, times=5)
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        await node.published(*cpus(0))


async def test_what_is_refused_is_told_with_the_servers_words(node: Node) -> None:
    node.use(PATIENT)
    node.server.fail("POST resourceslices", 422, "Invalid", "exactly one value must be specified")
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        state = await node.says(lambda state: state.error is not None)
        assert state.reason == "Invalid"
        assert "exactly one value must be specified" in str(state.error)
        await node.server.settled()
        assert len(node.server.written()) == 1  # not sent again and again
        node.controller.publish(cpus(1))
        await node.published(*cpus(1))


@pytest.mark.parametrize("what", ["POST", "PUT", "DELETE"])
async def test_writes_whose_answers_are_lost_end_well(node: Node, what: str) -> None:
    async with background(node.controller.run()):
        node.server.lose_answer(what, times=2)
        for wanted in (cpus(*range(130)), cpus(*range(70), mark=1), cpus(*range(200)), cpus(0)):
            node.controller.publish(wanted)
            await node.published(*wanted)
    assert {one["spec"]["pool"]["resourceSliceCount"] for one in node.slices} == {1}


@pytest.mark.parametrize("writes", range(1, 5))
async def test_a_crash_between_any_two_writes_is_repaired_at_the_next_start(node: Node, writes: int) -> None:
    node.controller.publish(cpus(*range(130)))
    async with background(node.controller.run()):
        await node.published(*cpus(*range(130)))
    node.use(QUICK)
    before = len(node.server.written())
    node.controller.publish(cpus(*range(1, 200)))
    async with background(node.controller.run()):
        await node.server.until(lambda: len(node.server.written()) - before >= writes)

    node.use(QUICK)
    node.states.clear()
    node.controller.publish(cpus(*range(2, 70)))
    async with background(node.controller.run()):
        state = await node.published(*cpus(*range(2, 70)))
    assert {one["spec"]["pool"]["generation"] for one in node.slices} == {state.generation}
    assert {one["spec"]["pool"]["resourceSliceCount"] for one in node.slices} == {len(node.slices)}


async def test_without_consumable_capacity_no_group_is_ever_stored(node: Node) -> None:
    node.use(PATIENT)
    node.server.gates.discard(CONSUMABLE_CAPACITY)
    async with background(node.controller.run()):
        node.controller.publish(group())
        state = await node.says(lambda state: state.reason == "FeatureGateDisabled")
        assert not state.published
        assert "DRAConsumableCapacity" in str(state.error)
        assert node.offered == []
        sent = [one for one in node.server.requests if one.method == "POST" and one.body["spec"].get("devices")]
        assert [one.query for one in sent] == [{"dryRun": "All"}]
        node.controller.publish(cpus(0, 1))  # mode: individual
        await node.published(*cpus(0, 1))


async def test_the_gate_is_tried_again(node: Node) -> None:
    node.server.gates.discard(CONSUMABLE_CAPACITY)
    async with background(node.controller.run()):
        node.controller.publish(group())
        await node.says(lambda state: state.reason == "FeatureGateDisabled")
        node.server.gates.add(CONSUMABLE_CAPACITY)
        await node.published(*group())


async def test_a_group_that_an_older_server_damages_later_is_taken_back(node: Node) -> None:
    node.use(PATIENT)
    async with background(node.controller.run()):
        node.controller.publish(group(32))
        await node.published(*group(32))
        node.server.gates.discard(CONSUMABLE_CAPACITY)
        node.controller.publish(group(16))
        await node.says(lambda state: state.reason == "FeatureGateDisabled")
        await node.server.until(lambda: node.offered == [])


async def test_dropped_taints_are_told_and_adopted(node: Node) -> None:
    node.server.gates.discard(DEVICE_TAINTS)
    async with background(node.controller.run()):
        node.controller.publish(group(32, Taint("dra.cpu/settling")))
        state = await node.published(*group(32))
        assert state.reason == "FieldsDropped"
        assert "DRADeviceTaints" in str(state.error)
        await node.server.settled()
        assert node.server.written() == ["POST resourceslices"] * 2  # the dry run and the slice, and no loop


def close_to(root: str) -> list[Device]:
    (device,) = group()
    return [replace(device, attributes={"dra.cpu/numCPUs": 32, "resource.kubernetes.io/pcieRoot": (root,)})]


def attributes(node: Node) -> set[str]:
    return {name for one in node.slices for device in one["spec"]["devices"] for name in device["attributes"]}


async def test_where_lists_are_refused_devices_are_published_without_them_and_the_gate_is_named(node: Node) -> None:
    node.use(PATIENT)
    async with background(node.controller.run()):
        node.controller.publish(close_to("pci0000:00"))
        state = await node.says(lambda state: state.reason == "FieldsDropped")
        assert state.published
        assert "DRAListTypeAttributes" in str(state.error)
        assert attributes(node) == {"dra.cpu/numCPUs"}
        await node.server.settled()
        # what is refused, what sharing looks like, and the slice itself: no loop
        assert node.server.written() == ["POST resourceslices"] * 3
        node.controller.publish(group())
        await node.says(lambda state: state.reason == "Published")


async def test_lists_are_tried_again(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish(close_to("pci0000:00"))
        await node.says(lambda state: state.reason == "FieldsDropped")
        node.server.gates.add(LIST_ATTRIBUTES)
        await node.says(lambda state: state.reason == "Published")
        assert "resource.kubernetes.io/pcieRoot" in attributes(node)


async def test_lists_that_are_refused_later_are_left_out_then(node: Node) -> None:
    node.use(PATIENT)
    node.server.gates.add(LIST_ATTRIBUTES)
    async with background(node.controller.run()):
        node.controller.publish(close_to("pci0000:00"))
        await node.says(lambda state: state.reason == "Published")
        node.server.gates.discard(LIST_ATTRIBUTES)
        node.controller.publish(close_to("pci0000:80"))
        await node.says(lambda state: state.reason == "FieldsDropped")
        assert attributes(node) == {"dra.cpu/numCPUs"}

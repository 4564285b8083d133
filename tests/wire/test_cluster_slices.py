"""The slice controller, with an API server and other clients that interfere as in real clusters."""

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
    """A node n1, its controller and the states that it reported."""

    def __init__(self, server: FakeApi, client: ApiClient) -> None:
        self.server = server
        self.states: list[SlicesState] = []
        self._client = client
        self._reported = asyncio.Event()
        self.use(QUICK)

    def use(self, timing: SliceTiming) -> None:
        self.controller = SliceController(self._client, "dra.cpu", "n1", self._record, timing=timing)

    def _record(self, state: SlicesState) -> None:
        self.states.append(state)
        self._reported.set()

    @property
    def slices(self) -> list[dict[str, Any]]:
        return self.server.all("resourceslices")

    @property
    def offered(self) -> list[str]:
        return [device["name"] for stored in self.slices for device in stored["spec"].get("devices", [])]

    async def published(self, *devices: Device) -> SlicesState:
        """Waits until exactly these devices are offered and the controller reports it."""
        names = [device.name for device in devices]
        await self.server.until(lambda: self.offered == names)
        return await self.reports(lambda state: state.published and state.devices == len(names))

    async def reports(self, condition: Callable[[SlicesState], bool]) -> SlicesState:
        """Waits until the latest state fulfils the condition."""
        async with asyncio.timeout(10):
            while not self.states or not condition(self.states[-1]):
                self._reported.clear()
                await self._reported.wait()
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
    assert [stored["metadata"]["name"][:17] for stored in node.slices] == ["00000-dra.cpu-n1-", "00001-dra.cpu-n1-"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1", "controller": True}
    assert all(stored["metadata"]["ownerReferences"] == [owner] for stored in node.slices)


async def test_publishing_no_devices_makes_an_empty_slice_and_withdrawing_deletes_it(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish([])
        await node.reports(lambda state: state.published)
        assert [stored["spec"].get("devices") for stored in node.slices] == [None]
        node.controller.withdraw()
        await node.reports(lambda state: state.reason == "Withdrawn")
    assert node.slices == []


async def test_slices_of_an_earlier_run_stay_until_devices_are_set(node: Node) -> None:
    node.server.add(
        "resourceslices", {"metadata": {"name": "00000-x"}, "spec": {"driver": "dra.cpu", "nodeName": "n1"}}
    )
    async with background(node.controller.run()):
        await node.server.until(lambda: node.server.watching)
        await node.server.until_idle()
    assert node.server.written() == []


async def test_a_restart_with_the_same_devices_writes_nothing(node: Node) -> None:
    for _ in range(2):
        node.use(QUICK)
        node.states.clear()
        node.controller.publish(cpus(0, 1))
        async with background(node.controller.run()):
            await node.published(*cpus(0, 1))
            await node.server.until_idle()
    assert node.server.written() == ["POST resourceslices"]


async def test_changes_in_quick_succession_are_written_together(node: Node) -> None:
    node.use(SliceTiming(debounce=0.1))
    async with background(node.controller.run()):
        for count in range(1, 11):
            node.controller.publish(cpus(*range(count)))
        await node.published(*cpus(*range(10)))
    assert node.server.written() == ["POST resourceslices"]


async def test_a_watch_that_lags_causes_no_extra_writes(node: Node) -> None:
    async with background(node.controller.run()):
        await node.server.until(lambda: node.server.watching)
        node.server.hold_watches()
        for desired in (cpus(0), cpus(0, 1), [], cpus(2)):
            node.controller.publish(desired)
            await node.published(*desired)
        node.controller.withdraw()
        await node.reports(lambda state: state.reason == "Withdrawn")
        assert node.slices == []
        node.server.release_watches()
        await node.server.until_idle()
    assert [request.split()[0] for request in node.server.written()] == ["POST", "PUT", "PUT", "PUT", "DELETE"]


async def test_slices_of_other_drivers_and_other_nodes_are_not_changed(node: Node) -> None:
    for name, driver, where in (("00000-a", "other", "n1"), ("00000-b", "dra.cpu", "n2")):
        pool = {"name": where, "generation": 7, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": where, "pool": pool}
        node.server.add("resourceslices", {"metadata": {"name": name}, "spec": spec})
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        state = await node.published(*cpus(0))
        node.controller.withdraw()
        await node.reports(lambda state: state.reason == "Withdrawn")
    assert state.generation == 1
    assert [stored["metadata"]["name"] for stored in node.slices] == ["00000-a", "00000-b"]


async def test_deleted_slices_are_published_again(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish(cpus(*range(70)))
        await node.published(*cpus(*range(70)))
        for stored in node.slices:
            node.server.remove("resourceslices", stored["metadata"]["name"])
        await node.published(*cpus(*range(70)))


async def test_a_changed_slice_is_restored(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish(cpus(0, 1))
        await node.published(*cpus(0, 1))
        name = node.slices[0]["metadata"]["name"]
        node.server.edit("resourceslices", name, lambda stored: stored["spec"]["devices"].pop())
        await node.published(*cpus(0, 1))


@pytest.mark.parametrize("by", ["new devices", "the kubelet's registration"])
async def test_new_devices_and_a_registration_end_the_delay_after_repeated_deletions(node: Node, by: str) -> None:
    node.use(SliceTiming(debounce=0.001, repair_first=3600, repair_cap=3600))
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        for _ in range(2):  # after the first deletion the slice is published again at once
            await node.server.until(lambda: node.slices)
            node.server.remove("resourceslices", node.slices[0]["metadata"]["name"])
        await node.server.until_idle()
        assert node.slices == []
        if by == "new devices":
            node.controller.publish(cpus(1))
        else:
            node.controller.check_now()
        await node.server.until(lambda: node.slices)


async def test_slices_are_owned_by_the_node_after_it_was_created_anew(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish(cpus(*range(70)))
        await node.published(*cpus(*range(70)))
        node.server.remove("nodes", "n1")
        node.server.add("nodes", {"metadata": {"name": "n1", "uid": "uid-2"}})
        # garbage collection deletes the slices one by one
        node.server.remove("resourceslices", node.slices[0]["metadata"]["name"])
        await node.server.until(
            lambda: {stored["metadata"]["ownerReferences"][0]["uid"] for stored in node.slices} == {"uid-2"}
        )
        await node.published(*cpus(*range(70)))


async def test_a_missing_node_is_reported_and_retried(node: Node) -> None:
    node.server.remove("nodes", "n1")
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        state = await node.reports(lambda state: state.error is not None)
        assert not state.published
        assert "nodes" in str(state.error)
        node.server.add("nodes", {"metadata": {"name": "n1"}})
        await node.published(*cpus(0))


@pytest.mark.parametrize("what", ["GET resourceslices", "GET nodes", "POST resourceslices", "WATCH"])
@pytest.mark.parametrize("code", [403, 409, 500, 503])
async def test_temporary_errors_are_retried(node: Node, what: str, code: int) -> None:
    node.server.fail(what, code, times=5)
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        await node.published(*cpus(0))


async def test_a_refusal_is_reported_with_the_servers_message(node: Node) -> None:
    node.use(PATIENT)
    node.server.fail("POST resourceslices", 422, "Invalid", "exactly one value must be specified")
    async with background(node.controller.run()):
        node.controller.publish(cpus(0))
        state = await node.reports(lambda state: state.error is not None)
        assert state.reason == "Invalid"
        assert "exactly one value must be specified" in str(state.error)
        await node.server.until_idle()
        assert len(node.server.written()) == 1  # it is not repeated
        node.controller.publish(cpus(1))
        await node.published(*cpus(1))


@pytest.mark.parametrize("what", ["POST", "PUT", "DELETE"])
async def test_slices_are_correct_after_writes_whose_answers_were_lost(node: Node, what: str) -> None:
    async with background(node.controller.run()):
        node.server.lose_answer(what, times=2)
        for desired in (cpus(*range(130)), cpus(*range(70), mark=1), cpus(*range(200)), cpus(0)):
            node.controller.publish(desired)
            await node.published(*desired)
    assert {stored["spec"]["pool"]["resourceSliceCount"] for stored in node.slices} == {1}


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
    assert {stored["spec"]["pool"]["generation"] for stored in node.slices} == {state.generation}
    assert {stored["spec"]["pool"]["resourceSliceCount"] for stored in node.slices} == {len(node.slices)}


async def test_without_consumable_capacity_a_group_is_never_stored(node: Node) -> None:
    node.use(PATIENT)
    node.server.gates.discard(CONSUMABLE_CAPACITY)
    async with background(node.controller.run()):
        node.controller.publish(group())
        state = await node.reports(lambda state: state.reason == "FeatureGateDisabled")
        assert not state.published
        assert "DRAConsumableCapacity" in str(state.error)
        assert node.offered == []
        posted = [request for request in node.server.requests if request.method == "POST"]
        assert [sent.query for sent in posted if sent.body["spec"].get("devices")] == [{"dryRun": "All"}]
        node.controller.publish(cpus(0, 1))  # mode: individual
        await node.published(*cpus(0, 1))


async def test_groups_are_published_after_the_feature_gate_was_enabled(node: Node) -> None:
    node.server.gates.discard(CONSUMABLE_CAPACITY)
    async with background(node.controller.run()):
        node.controller.publish(group())
        await node.reports(lambda state: state.reason == "FeatureGateDisabled")
        node.server.gates.add(CONSUMABLE_CAPACITY)
        await node.published(*group())


async def test_a_group_that_the_server_stores_without_its_capacity_is_deleted(node: Node) -> None:
    node.use(PATIENT)
    async with background(node.controller.run()):
        node.controller.publish(group(32))
        await node.published(*group(32))
        node.server.gates.discard(CONSUMABLE_CAPACITY)
        node.controller.publish(group(16))
        await node.reports(lambda state: state.reason == "FeatureGateDisabled")
        await node.server.until(lambda: node.offered == [])


async def test_dropped_taints_are_reported_and_not_written_again(node: Node) -> None:
    node.server.gates.discard(DEVICE_TAINTS)
    async with background(node.controller.run()):
        node.controller.publish(group(32, Taint("dra.cpu/settling")))
        state = await node.published(*group(32))
        assert state.reason == "FieldsDropped"
        assert "DRADeviceTaints" in str(state.error)
        await node.server.until_idle()
        assert node.server.written() == ["POST resourceslices"] * 2  # the dry run and the slice


def close_to(root: str) -> list[Device]:
    (device,) = group()
    return [replace(device, attributes={"dra.cpu/numCPUs": 32, "resource.kubernetes.io/pcieRoot": (root,)})]


def attributes(node: Node) -> set[str]:
    return {name for stored in node.slices for device in stored["spec"]["devices"] for name in device["attributes"]}


async def test_without_support_for_lists_devices_are_published_without_them_and_the_gate_is_named(node: Node) -> None:
    node.use(PATIENT)
    async with background(node.controller.run()):
        node.controller.publish(close_to("pci0000:00"))
        state = await node.reports(lambda state: state.reason == "FieldsDropped")
        assert state.published
        assert "DRAListTypeAttributes" in str(state.error)
        assert attributes(node) == {"dra.cpu/numCPUs"}
        await node.server.until_idle()
        assert node.server.written() == ["POST resourceslices"] * 3  # a dry run for lists, one for sharing, the slice
        node.controller.publish(group())
        await node.reports(lambda state: state.reason == "Published")


async def test_lists_are_published_after_the_feature_gate_was_enabled(node: Node) -> None:
    async with background(node.controller.run()):
        node.controller.publish(close_to("pci0000:00"))
        await node.reports(lambda state: state.reason == "FieldsDropped")
        node.server.gates.add(LIST_ATTRIBUTES)
        await node.reports(lambda state: state.reason == "Published")
        assert "resource.kubernetes.io/pcieRoot" in attributes(node)


async def test_lists_are_left_out_after_the_feature_gate_was_disabled(node: Node) -> None:
    node.use(PATIENT)
    node.server.gates.add(LIST_ATTRIBUTES)
    async with background(node.controller.run()):
        node.controller.publish(close_to("pci0000:00"))
        await node.reports(lambda state: state.reason == "Published")
        node.server.gates.discard(LIST_ATTRIBUTES)
        node.controller.publish(close_to("pci0000:80"))
        await node.reports(lambda state: state.reason == "FieldsDropped")
        assert attributes(node) == {"dra.cpu/numCPUs"}

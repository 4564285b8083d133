"""The API server's data is restored from a backup: objects have versions below those that clients have seen."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from background import background
from fake_api import FakeApi
from nodes import spec

from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.cpunode import CpuNodeWatch, StatusWriter
from dracpu_agent.cluster.slices.controller import SliceController, SliceTiming
from dracpu_agent.devices.device import Device
from dracpu_api.backoff import Backoff
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import encode_spec

QUICK = SliceTiming(debounce=0.01, repair_first=0.02, repair_cap=0.1, retry_first=0.01, retry_cap=0.05)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        server.add("nodes", {"metadata": {"name": "n1", "uid": "uid-1"}})
        server.add("cpunodes", {"metadata": {"name": "n1"}, "spec": encode_spec(spec(revision="r1"))})
        yield server


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[ApiClient]:
    async with ApiClient(ApiAccess(api.url), version="1", request_timeout=5) as client:
        yield client


class Node:
    """The CpuNode n1, its watch and the writer of its status."""

    def __init__(self, api: FakeApi, client: ApiClient) -> None:
        quick = Backoff(0.01, 0.02)
        self._api = api
        self.revisions: asyncio.Queue[str] = asyncio.Queue()
        self.writer = StatusWriter(client, "n1", interval=0.01, backoff=quick)
        self._watch = CpuNodeWatch(client, "n1", self._on_spec, self.writer.observe, backoff=quick)

    def _on_spec(self, found: dict[str, Any] | None) -> None:
        self.revisions.put_nowait(found["revision"] if found else "")

    def running(self) -> Any:
        return background(self.writer.run(), self._watch.run())

    async def revision(self, expected: str) -> None:
        """Waits until the watch reports this revision."""
        async with asyncio.timeout(10):
            while await self.revisions.get() != expected:
                pass

    async def shows(self, **fields: Any) -> None:
        """Waits until the stored status has these fields."""
        await self._api.until(lambda: fields.items() <= (self._api.get("cpunodes", "n1").get("status") or {}).items())


@pytest.fixture
def node(api: FakeApi, client: ApiClient) -> Node:
    return Node(api, client)


def edit_revision(api: FakeApi, revision: str) -> None:
    api.edit("cpunodes", "n1", lambda stored: stored["spec"].update(revision=revision))


@pytest.mark.parametrize("watches_break", [True, False])
async def test_the_status_is_written_again_into_a_restored_cpu_node(api: FakeApi, node: Node, watches_break: bool):
    restore = api.backup()
    async with node.running():
        for claims in range(3):
            node.writer.set({"claimsTotal": claims})
            await node.shows(claimsTotal=claims)
        restore()
        assert not api.get("cpunodes", "n1").get("status")
        if watches_break:
            api.cut_watches()
        else:
            edit_revision(api, "r2")  # the open watch reports it with a version that is lower than the last one
        await node.shows(claimsTotal=2)
        node.writer.set({"claimsTotal": 7})
        await node.shows(claimsTotal=7)


async def test_the_spec_of_a_restored_cpu_node_is_reported(api: FakeApi, node: Node):
    restore = api.backup()
    async with node.running():
        await node.revision("r1")
        for revision in ("r2", "r3"):
            edit_revision(api, revision)
            await node.revision(revision)
        restore()
        api.cut_watches()
        await node.revision("r1")
        edit_revision(api, "r4")
        await node.revision("r4")


async def test_the_status_is_written_after_a_404_about_a_cpu_node_that_is_there(api: FakeApi, node: Node):
    details = {"name": "n1", "group": "dra.cpu", "kind": "cpunodes"}
    api.fail("PATCH cpunodes/n1/status", 404, "NotFound", 'cpunodes.dra.cpu "n1" not found', details=details)
    async with node.running():
        node.writer.set({"claimsTotal": 1})
        await node.shows(claimsTotal=1)


async def test_no_status_is_written_between_the_deletion_of_a_cpu_node_and_the_next_one(api: FakeApi, node: Node):
    async with node.running():
        await node.revision("r1")
        api.hold_watches()
        api.remove("cpunodes", "n1")
        node.writer.set({"claimsTotal": 1})
        await api.until(api.written)
        await api.until_idle()
        written = len(api.written())
        api.release_watches()
        await node.revision("")
        assert len(api.written()) == written
        api.add("cpunodes", {"metadata": {"name": "n1"}, "spec": encode_spec(spec(revision="r1"))})
        await node.shows(claimsTotal=1)


def devices(*cpus: int) -> list[Device]:
    return [Device(f"cpudev{number:03d}", CpuSet([number]), {}) for number in cpus]


def offered(api: FakeApi) -> list[str]:
    return [device["name"] for stored in api.all("resourceslices") for device in stored["spec"].get("devices", ())]


def offers(api: FakeApi, count: int) -> bool:
    return len(offered(api)) == count


async def test_restored_slices_are_brought_up_to_date(api: FakeApi, client: ApiClient):
    controller = SliceController(client, "dra.cpu", "n1", lambda state: None, timing=QUICK)
    controller.publish(devices(1))
    async with background(controller.run()):
        await api.until(lambda: offered(api) == ["cpudev001"])
        await api.until(lambda: api.watching)
        restore = api.backup()
        api.hold_watches()  # the answers to the writes are all that the controller gets to see
        for count in (2, 3):
            controller.publish(devices(*range(1, count + 1)))
            await api.until(partial(offers, api, count))
        restore()
        assert offered(api) == ["cpudev001"]
        api.cut_watches()
        api.release_watches()
        await api.until(lambda: offered(api) == ["cpudev001", "cpudev002", "cpudev003"])


async def test_restored_slices_are_deleted_again(api: FakeApi, client: ApiClient):
    controller = SliceController(client, "dra.cpu", "n1", lambda state: None, timing=QUICK)
    controller.publish(devices(1))
    async with background(controller.run()):
        await api.until(partial(offers, api, 1))
        await api.until(lambda: api.watching)
        restore = api.backup()
        api.hold_watches()
        controller.withdraw()
        await api.until(partial(offers, api, 0))
        await api.until_idle()  # until the answer has arrived, too
        restore()
        api.cut_watches()
        api.release_watches()
        await api.until(partial(offers, api, 0))

"""A proxy answers instead of the API server: what it says about objects is not believed."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from background import background
from fake_api import FakeApi
from scripted_http import Peer, Script, scripted

from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.cpunode import CpuNodeWatch
from dracpu_agent.cluster.slices.controller import SliceController, SlicesState, SliceTiming
from dracpu_agent.devices.device import Device
from dracpu_api.backoff import Backoff
from dracpu_api.cpuset import CpuSet

QUICK = SliceTiming(debounce=0.01, repair_first=0.02, repair_cap=0.1, retry_first=0.01, retry_cap=0.05)
UNSERVED = "the server could not find the requested resource"


def devices(*cpus: int) -> list[Device]:
    return [Device(f"cpudev{number:03d}", CpuSet([number]), {}) for number in cpus]


class Publishing:
    """The slices of a node n1."""

    def __init__(self, server: FakeApi, client: ApiClient) -> None:
        self.server = server
        self._states: asyncio.Queue[SlicesState] = asyncio.Queue()
        self.controller = SliceController(client, "dra.cpu", "n1", self._states.put_nowait, timing=QUICK)

    async def state(self, reason: str) -> SlicesState:
        """Waits until the controller reports this reason."""
        async with asyncio.timeout(10):
            while (state := await self._states.get()).reason != reason:
                pass
        return state


@pytest.fixture
async def publishing() -> AsyncIterator[Publishing]:
    async with FakeApi() as server, ApiClient(ApiAccess(server.url), version="1", request_timeout=5) as client:
        server.add("nodes", {"metadata": {"name": "n1", "uid": "uid-1"}})
        made = Publishing(server, client)
        async with background(made.controller.run()):
            made.controller.publish(devices(1))
            await made.state("Published")
            yield made


async def test_a_slice_is_deleted_although_a_404_came_first(publishing: Publishing) -> None:
    publishing.server.fail("DELETE resourceslices", 404, "NotFound", UNSERVED)
    publishing.controller.withdraw()
    await publishing.state("Withdrawn")
    assert publishing.server.all("resourceslices") == []


async def test_a_slice_is_not_published_twice_after_a_404(publishing: Publishing) -> None:
    (before,) = publishing.server.all("resourceslices")
    publishing.server.fail("PUT resourceslices", 404, "NotFound", UNSERVED)
    publishing.controller.publish(devices(1, 2))
    await publishing.state("Published")
    (after,) = publishing.server.all("resourceslices")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [device["name"] for device in after["spec"]["devices"]] == ["cpudev001", "cpudev002"]


def ok(body: Any) -> bytes:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n".encode() + payload


CPU_NODE = {
    "kind": "CpuNode",
    "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"},
    "spec": {"revision": "r1"},
}
LISTED = {"kind": "CpuNodeList", "metadata": {"resourceVersion": "7"}, "items": [CPU_NODE]}


def once(answer: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)

    return script


@pytest.mark.parametrize(
    "page",
    [{}, {"status": "ok"}, {"items": []}, LISTED | {"kind": "List", "items": []}, b"<html>hello</html>"],
)
async def test_a_page_of_a_proxy_is_never_taken_for_a_list_without_the_nodes_cpunode(page: Any) -> None:
    specs: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    listed_again = asyncio.Event()

    async def last(peer: Peer) -> None:
        await peer.request()
        listed_again.set()
        await peer.rest()

    async with (
        # the list, a watch that ends with an error, the page instead of the second list, and a third list
        scripted(once(ok(LISTED)), once(ok(b"{}\n")), once(ok(page)), last) as server,
        ApiClient(ApiAccess(f"http://127.0.0.1:{server.port}"), version="1") as client,
        background(CpuNodeWatch(client, "n1", specs.put_nowait, backoff=Backoff(0.01, 0.02)).run()),
    ):
        assert await specs.get() == {"revision": "r1"}
        await listed_again.wait()
        assert specs.empty(), "the node keeps its settings"

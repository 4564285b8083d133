"""The node's CpuNode: changes of its spec are reported, and its status is written only when necessary."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from background import background
from fake_api import FakeApi
from nodes import spec

from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.cpunode import CpuNodeWatch, StatusWriter
from dracpu_api.backoff import Backoff
from dracpu_api.settings import encode_spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def spec_of(revision: str) -> dict[str, Any]:
    return encode_spec(spec(revision=revision))


def cpu_node(revision: str, name: str = "n1") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec_of(revision)}


def status(ready: str = "True", *, phase: str = "Ready", **others: Any) -> dict[str, Any]:
    conditions = [{"type": "SlicesPublished", "status": ready, "reason": "Published", "message": ""}]
    return {"phase": phase, "appliedRevision": "r1", "conditions": conditions, **others}


class Node:
    """The watch and the status writer of a node n1."""

    def __init__(self, server: FakeApi, client: ApiClient, interval: float) -> None:
        self.server = server
        self.specs: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.writer = StatusWriter(client, "n1", interval=interval, backoff=Backoff(0.01, 0.02), clock=lambda: self.now)
        self.watch = CpuNodeWatch(client, "n1", self.specs.put_nowait, self.writer.observe, backoff=Backoff(0.01, 0.02))
        self.now = NOW

    def running(self) -> Any:
        return background(self.watch.run(), self.writer.run())

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.server.get("cpunodes", "n1").get("status") or {})

    async def shows(self, **fields: Any) -> None:
        await self.server.until(lambda: fields.items() <= self.status.items())


@pytest.fixture(params=[0.05])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    async with FakeApi() as server, ApiClient(ApiAccess(server.url), version="1", request_timeout=5) as client:
        server.add("cpunodes", cpu_node("r1"))
        yield Node(server, client, request.param)


urgent_only = pytest.mark.parametrize("node", [3600.0], indirect=True)  # the interval for other changes never ends


async def test_the_spec_is_reported_at_first_after_changes_and_after_a_deletion(node: Node) -> None:
    async with node.running():
        assert await node.specs.get() == spec_of("r1")
        node.server.edit("cpunodes", "n1", lambda stored: stored["spec"].update(revision="r2"))
        assert await node.specs.get() == spec_of("r2")
        node.server.remove("cpunodes", "n1")
        assert await node.specs.get() is None
        node.server.add("cpunodes", cpu_node("r3"))
        assert await node.specs.get() == spec_of("r3")


async def test_a_missing_cpu_node_is_reported(node: Node) -> None:
    node.server.remove("cpunodes", "n1")
    async with node.running():
        assert await node.specs.get() is None


async def test_changes_of_the_status_and_of_other_nodes_are_not_reported(node: Node) -> None:
    async with node.running():
        await node.specs.get()
        node.writer.set(status())
        node.server.add("cpunodes", cpu_node("x", "n2"))
        await node.shows(phase="Ready")
        await node.server.until_idle()
        assert node.specs.empty()


async def test_an_unchanged_status_is_written_once(node: Node) -> None:
    async with node.running():
        node.writer.set(status())
        await node.shows(phase="Ready")
        node.writer.set(status())
        await node.server.until_idle()
    assert node.server.written() == ["PATCH cpunodes/n1/status"]
    assert node.status["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"


async def test_an_unchanged_status_is_not_written_after_a_restart(node: Node) -> None:
    async with node.running():
        node.writer.set(status())
        await node.shows(phase="Ready")
    async with ApiClient(ApiAccess(node.server.url), version="1") as client:
        again = Node(node.server, client, 0.05)
        async with again.running():
            again.writer.set(status())
            await node.server.until_idle()
    assert len(node.server.written()) == 1


async def test_changes_that_are_not_urgent_are_written_together(node: Node) -> None:
    async with node.running():
        node.writer.set(status(claimsTotal=0))
        await node.shows(claimsTotal=0)
        for claims in range(1, 20):
            node.writer.set(status(claimsTotal=claims))
            await asyncio.sleep(0)
        await node.shows(claimsTotal=19)
    assert len(node.server.written()) == 2


@urgent_only
async def test_an_urgent_change_is_written_at_once(node: Node) -> None:
    async with node.running():
        node.writer.set(status())
        await node.shows(phase="Ready")
        node.writer.set(status(claimsTotal=1))
        await node.server.until_idle()
        assert "claimsTotal" not in node.status
        node.now = NOW.replace(hour=1)
        node.writer.set(status("False", claimsTotal=1))
        await node.shows(claimsTotal=1)
        assert node.status["conditions"][0]["lastTransitionTime"] == "2026-01-01T01:00:00Z"


async def test_fields_that_the_status_lacks_are_deleted(node: Node) -> None:
    node.server.edit("cpunodes", "n1", lambda stored: stored.update(status={"claimsTotal": 1}))
    async with node.running():
        node.writer.set(status(agentVersion="1"))
        await node.shows(agentVersion="1")
        assert "claimsTotal" not in node.status
        node.writer.set(status())
        await node.server.until(lambda: "agentVersion" not in node.status)
    assert node.status.keys() == status().keys()


async def test_a_status_that_others_changed_is_restored(node: Node) -> None:
    async with node.running():
        node.writer.set(status())
        await node.shows(phase="Ready")
        node.server.edit("cpunodes", "n1", lambda stored: stored["status"].update(phase="Failed"))
        await node.shows(phase="Ready")


async def test_an_outdated_object_from_the_watch_is_ignored(node: Node) -> None:
    before = node.server.get("cpunodes", "n1")
    async with background(node.writer.run()):
        node.writer.observe(before)
        node.writer.set(status())
        await node.shows(phase="Ready")
        await node.server.until_idle()  # until the answer has arrived, too
        node.writer.observe(before)
        await node.server.until_idle(0.1)
    assert len(node.server.written()) == 1


@urgent_only
async def test_a_new_cpu_node_gets_its_status_at_once(node: Node) -> None:
    async with node.running():
        node.writer.set(status())
        await node.shows(phase="Ready")
        node.server.remove("cpunodes", "n1")
        node.server.add("cpunodes", cpu_node("r2"))
        await node.shows(phase="Ready")


async def test_fields_that_the_server_prunes_are_not_written_again(node: Node) -> None:
    async with node.running():
        node.writer.set(status(unknown=1))
        await node.shows(phase="Ready")
        await node.server.until_idle(0.2)
    assert "unknown" not in node.status
    assert len(node.server.written()) == 1


async def test_a_write_is_retried_after_errors(node: Node) -> None:
    node.server.fail("PATCH", 503, times=2)
    node.server.fail("PATCH", 422, times=1)
    node.server.fail("(GET|WATCH) cpunodes", 500, times=2)
    async with node.running():
        node.writer.set(status())
        await node.shows(phase="Ready")
    assert len(node.server.written()) == 4


async def test_after_a_conflict_the_new_difference_is_written(node: Node) -> None:
    async with node.running():
        node.writer.set(status())
        await node.shows(phase="Ready")
        node.server.hold_watches()
        node.server.edit("cpunodes", "n1", lambda stored: stored["status"].update(phase="Failed"))
        node.writer.set(status("False"))
        await node.server.until(lambda: len(node.server.written()) >= 2)
        assert node.status["phase"] == "Failed"  # the patch was a conflict
        node.server.release_watches()
        await node.server.until(lambda: node.status["conditions"][0]["status"] == "False")
        await node.shows(phase="Ready")


async def test_without_a_cpu_node_nothing_is_written(node: Node) -> None:
    node.server.remove("cpunodes", "n1")
    async with node.running():
        node.writer.set(status())
        await node.specs.get()
        await node.server.until_idle()
        assert node.server.written() == []
        node.server.add("cpunodes", cpu_node("r2"))
        await node.shows(phase="Ready")


async def test_a_change_that_the_watch_shows_before_the_answer_to_a_write_is_kept() -> None:
    def stored(version: int, **fields: Any) -> dict[str, Any]:
        return {"metadata": {"name": "n1", "uid": "u", "resourceVersion": str(version)}, "status": fields}

    class Api:
        """Answers the first write after the watch has shown that somebody else changed the object since."""

        def __init__(self) -> None:
            self.patched: asyncio.Queue[str] = asyncio.Queue()
            self._answers = iter((stored(8, phase="Ready"), stored(10, phase="Ready")))

        async def merge_patch(self, _kind: object, _name: str, patch: dict[str, Any], **_: str) -> dict[str, Any]:
            version = patch["metadata"]["resourceVersion"]
            if version == "7":
                writer.observe(stored(9, phase="Failed"))
            self.patched.put_nowait(version)
            return next(self._answers)

    api = Api()
    writer = StatusWriter(api, "n1", interval=0.01)  # type: ignore[arg-type]
    writer.set({"phase": "Ready"})
    writer.observe(stored(7))
    async with background(writer.run()), asyncio.timeout(10):
        assert [await api.patched.get(), await api.patched.get()] == ["7", "9"]

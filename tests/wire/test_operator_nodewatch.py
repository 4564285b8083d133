"""Following Nodes: what is seen of them, and what a watch that breaks leaves behind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from fake_api import FakeApi
from kubernetes_asyncio.client import Configuration
from running_operator import QUICK

from dracpu_operator.api.cluster import Cluster
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.nodewatch import NodeWatch


class Watched:
    """A cluster's Nodes, and what the fleet knows of them."""

    def __init__(self, api: FakeApi, fleet: Fleet) -> None:
        self.api = api
        self.fleet = fleet

    def add(self, name: str, **labels: str) -> None:
        self.api.add("nodes", {"metadata": {"name": name, "labels": labels}, "status": {"images": ["x" * 1000] * 9}})

    async def knows(self, *names: str) -> None:
        """Until the fleet knows these Nodes, and no others."""
        async with asyncio.timeout(10):
            while set(self.fleet.nodes) != set(names):
                await self.fleet.changed.wait()
                self.fleet.changed.clear()

    def asked(self, what: str) -> int:
        return sum(str(one) == what for one in self.api.requests)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    async with FakeApi() as api, Cluster(Configuration(host=api.url)) as cluster:
        fleet = Fleet()
        watched = Watched(api, fleet)
        watched.add("n0")
        running = asyncio.create_task(NodeWatch(fleet, cluster, QUICK).run())
        await api.until(lambda: api.watching)
        yield watched
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_nodes_that_come_change_and_go_are_known_by_their_metadata(watched: Watched) -> None:
    watched.add("n1", pool="a")
    await watched.knows("n0", "n1")
    watched.api.edit("nodes", "n1", lambda one: one["metadata"]["labels"].update(pool="b"))
    watched.api.remove("nodes", "n0")
    await watched.knows("n1")
    assert watched.fleet.nodes["n1"].labels == {"pool": "b"}
    asked = [one.headers["Accept"] for one in watched.api.requests]
    assert all("as=PartialObjectMetadata" in one for one in asked)


async def test_a_watch_that_breaks_goes_on_from_where_it_was(watched: Watched) -> None:
    watched.api.bookmark()
    watched.api.cut_watches()
    watched.add("n1")
    watched.api.remove("nodes", "n0")
    await watched.knows("n1")
    assert watched.asked("GET nodes") == 1


async def test_after_its_history_has_expired_what_went_meanwhile_is_gone(watched: Watched) -> None:
    watched.api.hold_watches()
    watched.api.remove("nodes", "n0")
    watched.add("n1")
    watched.api.cut_watches()
    watched.api.expire_watches()
    watched.api.release_watches()
    await watched.api.until(lambda: watched.asked("GET nodes") == 2)
    await watched.knows("n1")


async def test_an_api_server_that_is_away_is_waited_for(watched: Watched) -> None:
    watched.api.fail("(WATCH|GET) nodes", 503, "ServiceUnavailable", times=5)
    watched.api.cut_watches()
    watched.add("n1")
    await watched.knows("n0", "n1")


async def test_an_object_larger_than_what_comes_at_once_is_put_together(watched: Watched) -> None:
    watched.add("n1", **{f"label-{number}": "x" * 63 for number in range(4000)})
    await watched.knows("n0", "n1")
    assert len(watched.fleet.nodes["n1"].labels) == 4000

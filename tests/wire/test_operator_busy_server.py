"""An API server that is busy: it refuses requests for some time, and drops the history of a list that takes long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from background import background
from fake_agents import FakeAgents
from fake_api import FakeApi
from kubernetes_asyncio.client import Configuration
from operator_world import World
from running_operator import QUICK

from dracpu_api.errors import UnavailableError
from dracpu_api.resources import NODES
from dracpu_operator.api import cluster
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.follow import list_all
from dracpu_operator.known.followers import NODE_SCOPE, object_followers
from dracpu_sandbox.apiserver.request import Request


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_PAGE", 10)
    monkeypatch.setattr(cluster, "_METADATA_PAGE", 10)
    monkeypatch.setattr(cluster, "_PAGE_RETRY_SECONDS", 0.01)


@asynccontextmanager
async def nodes(count: int) -> AsyncIterator[tuple[FakeApi, Cluster]]:
    async with FakeApi() as api, Cluster(Configuration(host=api.url)) as connected:
        for number in range(count):
            api.add("nodes", {"metadata": {"name": f"n{number:03}"}})
        yield api, connected


def is_next_page(request: Request) -> bool:
    return "continue" in request.query


def pages(api: FakeApi) -> list[str]:
    return ["next" if is_next_page(request) else "first" for request in api.requests if str(request) == "GET nodes"]


async def names(connected: Cluster) -> list[str]:
    return [raw["metadata"]["name"] async for raw in connected.items(NODES)]


@pytest.mark.parametrize(
    "refusal",
    [(429, "TooManyRequests", "too many requests", 0), (503, "ServiceUnavailable", "etcd", None)],
    ids=["429", "503"],
)
async def test_a_page_that_is_refused_is_requested_again_and_not_the_whole_list(refusal: tuple[Any, ...]) -> None:
    code, reason, message, seconds = refusal
    async with nodes(35) as (api, connected):
        api.fail("GET nodes", code, reason, message, retry_after=seconds, times=3, where=is_next_page)
        assert await names(connected) == [f"n{number:03}" for number in range(35)]
        assert pages(api) == ["first", *["next"] * 6]


async def test_a_lost_answer_to_a_page_costs_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nodes(35) as (api, connected):
        listed = connected.pages(NODE_SCOPE)
        await anext(listed)
        api.lose_answer("GET nodes", times=3)
        assert sum([len(page["items"]) async for page in listed]) == 25
        assert pages(api).count("first") == 1


async def test_a_server_that_stays_busy_is_reported_after_some_attempts() -> None:
    async with nodes(35) as (api, connected):
        api.fail("GET nodes", 429, "TooManyRequests", "too many", retry_after=0, times=1000, where=is_next_page)
        with pytest.raises(UnavailableError, match="too many"):
            await names(connected)
        assert pages(api) == ["first", *["next"] * 6]


async def test_it_waits_as_long_as_the_server_asks() -> None:
    loop = asyncio.get_running_loop()
    async with nodes(15) as (api, connected):
        began = loop.time()
        api.fail("GET nodes", 429, "TooManyRequests", "too many", retry_after=1, where=is_next_page)
        assert len(await names(connected)) == 15
        assert loop.time() - began >= 1


async def test_a_list_whose_history_is_dropped_goes_on_with_a_later_state() -> None:
    """What was deleted meanwhile is gone, what was created meanwhile is known, once the watch has shown the rest."""
    async with nodes(35) as (api, connected):
        fleet = Fleet()
        fleet.node_table.store(api.get("nodes", "n000"))
        for gone in ("n001", "n034"):
            fleet.node_table.store(api.get("nodes", gone))
        api.remove("nodes", "n001")
        listing = asyncio.create_task(list_all(_Slow(api, connected), NODE_SCOPE, fleet.node_table))
        await listing
        expected = {f"n{number:03}" for number in range(35)} - {"n001", "n034"} | {"n030a"}
        assert set(fleet.nodes) == expected | {"n002"}  # n002 was deleted after its page was read
        assert pages(api).count("first") == 1
        assert not fleet.outdated.is_set()


class _Slow:
    """Lists Nodes; after the first page, Nodes of all pages change and the history is dropped."""

    def __init__(self, api: FakeApi, connected: Cluster) -> None:
        self._api = api
        self._connected = connected

    async def pages(self, scope: Any) -> AsyncIterator[Any]:
        first = True
        async for page in self._connected.pages(scope):
            yield page
            if first:
                first = False
                self._api.remove("nodes", "n002")
                self._api.remove("nodes", "n034")
                self._api.add("nodes", {"metadata": {"name": "n030a"}})
                self._api.expire_watches()

    def watch(self, scope: Any, since: str, *, gathering: float = 0.0) -> Any:
        return self._connected.watch(scope, since, gathering=gathering)

    async def version(self, resource: Any, *, namespace: str = "") -> int:
        return await self._connected.version(resource, namespace=namespace)


async def test_a_watch_that_is_refused_is_opened_again_when_the_server_allows_it() -> None:
    async with nodes(3) as (api, connected):
        api.fail("WATCH nodes", 429, "TooManyRequests", "too many watches", retry_after=0, times=5)
        fleet = Fleet()
        async with background(object_followers(fleet, connected, QUICK)[0].run()):
            await api.until(lambda: api.watching)
            assert pages(api) == ["first"]


async def test_refused_writes_are_repeated_without_deciding_anew(tmp_path: Path) -> None:
    async with FakeApi() as api:
        agents = FakeAgents(api)
        world = World(api, agents, tmp_path)
        world.nodes(12)
        world.config()
        refused = 6
        api.fail("PATCH cpunodes/n", 429, "TooManyRequests", "too many", retry_after=0, times=refused)
        async with background(agents.run()), world.operator(replace(QUICK, retry_first=0.01)):
            await world.applied(12)
        creations = [str(request) for request in api.requests if str(request).startswith("PATCH cpunodes/")]
        assert len([text for text in creations if not text.endswith("/status")]) == 12 + refused
        assert not [request for request in api.requests if str(request).startswith("GET cpunodes/")]

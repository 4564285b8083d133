"""The reflector reports every change, whatever happens to its watch."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from background import background
from fake_api import FakeApi

from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.watch import Reflector, Snapshot
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ForbiddenError
from dracpu_api.resources import NODES, JsonObject


class Mirror:
    """Records what a reflector reports, and waits for it."""

    def __init__(self, server: FakeApi, client: ApiClient) -> None:
        self.objects: Mapping[str, JsonObject] = {}
        self.changes = 0
        self.errors: list[ApiError] = []
        self._changed = asyncio.Event()
        self.reflector = Reflector(
            client,
            NODES,
            field_selector="metadata.name!=cordoned",
            on_change=self._record,
            on_error=self.errors.append,
            backoff=Backoff(0.01, 0.02),
        )

    def _record(self, snapshot: Snapshot) -> None:
        self.objects = snapshot.objects
        self.changes += 1
        self._changed.set()

    async def shows(self, *names: str) -> None:
        await self.until(lambda: self.changes > 0 and sorted(self.objects) == sorted(names))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        yield server


@pytest.fixture
async def mirror(server: FakeApi) -> AsyncIterator[Mirror]:
    async with ApiClient(ApiAccess(server.url), version="1") as client:
        yield Mirror(server, client)


def add(server: FakeApi, name: str, **spec: bool) -> None:
    server.add("nodes", {"metadata": {"name": name}, "spec": spec})


async def test_all_objects_are_reported_at_first_and_after_every_change(server: FakeApi, mirror: Mirror) -> None:
    add(server, "n1")
    add(server, "cordoned", unschedulable=True)
    async with background(mirror.reflector.run()):
        await mirror.shows("n1")
        add(server, "n2")
        await mirror.shows("n1", "n2")
        server.remove("nodes", "n1")
        await mirror.shows("n2")


async def test_an_empty_list_is_reported(mirror: Mirror) -> None:
    async with background(mirror.reflector.run()):
        await mirror.shows()


async def test_changes_before_an_expired_watch_are_not_missed(server: FakeApi, mirror: Mirror) -> None:
    add(server, "n1")
    async with background(mirror.reflector.run()):
        await mirror.shows("n1")
        await server.until(lambda: server.watching)
        server.cut_watches()
        await server.until(lambda: not server.watching)
        server.remove("nodes", "n1")
        add(server, "n2")
        server.expire_watches()
        await mirror.shows("n2")


async def test_an_expired_watch_is_followed_by_a_list(server: FakeApi, mirror: Mirror) -> None:
    async with background(mirror.reflector.run()):
        await server.until(lambda: server.watching)
        server.expire_watches()
        await server.until(lambda: [str(request) for request in server.requests].count("GET nodes") == 2)
        await server.until(lambda: server.watching)
        add(server, "n1")
        await mirror.shows("n1")


async def test_a_field_that_a_new_crd_adds_is_reported_when_the_watch_from_before_has_ended(
    server: FakeApi, mirror: Mirror
) -> None:
    add(server, "n1")
    async with background(mirror.reflector.run()):
        await server.until(lambda: server.watching)
        server.add_to_schema("nodes", "unschedulable")
        server.edit("nodes", "n1", lambda body: body["spec"].update(unschedulable=True))
        await mirror.until(lambda: mirror.changes == 2)
        assert mirror.objects["n1"]["spec"] == {}
        server.end_watches()
        await mirror.until(lambda: mirror.objects["n1"]["spec"] == {"unschedulable": True})


async def test_a_bookmark_is_not_reported_as_a_change(server: FakeApi, mirror: Mirror) -> None:
    async with background(mirror.reflector.run()):
        await server.until(lambda: server.watching)
        before = mirror.changes
        add(server, "cordoned", unschedulable=True)
        server.bookmark()
        add(server, "n1")
        await mirror.shows("n1")
        assert mirror.changes == before + 1


async def test_errors_are_reported_and_retried(server: FakeApi, mirror: Mirror) -> None:
    server.fail("GET nodes", 403, times=2)
    server.fail("WATCH nodes", 500, times=2)
    add(server, "n1")
    async with background(mirror.reflector.run()):
        await mirror.shows("n1")
        await server.until(lambda: server.watching)
        add(server, "n2")
        await mirror.shows("n1", "n2")
    assert isinstance(mirror.errors[0], ForbiddenError)
    assert len(mirror.errors) == 4

"""The sandbox's client keeps its copies of objects complete when watches break, expire or are refused."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest
from background import background
from fake_api import FakeApi

from dracpu_sandbox.client import ConflictError, InvalidError, KubeClient, KubeError, Mirror, NotFoundError
from dracpu_sandbox.client import UnreachableError as Unreachable
from dracpu_sandbox.resources import NODES


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[KubeClient]:
    async with KubeClient(api.url) as client:
        yield client


def node(name: str, **labels: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


@contextlib.asynccontextmanager
async def mirrored(client: KubeClient, fields: str = "") -> AsyncIterator[tuple[Mirror, list[str]]]:
    """Runs a mirror of nodes, and yields it with its events as texts: "ADDED n1"."""
    events: list[str] = []
    mirror = Mirror(
        client,
        NODES,
        fields=fields,
        on_change=lambda event: events.append(
            f"{event.type} {event.object.get('metadata', {}).get('name', '')}".strip()
        ),
    )
    async with background(mirror.run()):
        await mirror.until(lambda: True)
        yield mirror, events


async def test_existing_objects_come_before_the_event_synced(api, client):
    api.add("nodes", node("n1"))
    api.add("nodes", node("n2"))
    async with mirrored(client) as (_, events):
        assert events == ["ADDED n1", "ADDED n2", "SYNCED"]


async def test_changes_arrive_in_order(api, client):
    async with mirrored(client) as (mirror, events):
        api.add("nodes", node("n1"))
        api.edit("nodes", "n1", lambda node: node["metadata"]["labels"].update(zone="a"))
        api.remove("nodes", "n1")
        await mirror.until(lambda: "DELETED n1" in events)
        assert events == ["SYNCED", "ADDED n1", "MODIFIED n1", "DELETED n1"]
        assert not mirror.items


async def test_a_mirror_has_only_the_selected_objects(api, client):
    api.add("nodes", node("n1"))
    api.add("nodes", node("n2"))
    async with mirrored(client, fields="metadata.name=n2") as (mirror, _):
        assert [name for _, name in mirror.items] == ["n2"]


async def test_a_deletion_during_a_lost_history_is_reported(api, client):
    api.add("nodes", node("n1"))
    api.add("nodes", node("n2"))
    async with mirrored(client) as (mirror, events):
        await api.until(lambda: api.watching)
        api.hold_watches()
        api.remove("nodes", "n1")
        api.edit("nodes", "n2", lambda node: node["metadata"]["labels"].update(zone="a"))
        api.cut_watches()
        api.expire_watches()
        api.release_watches()
        await mirror.until(lambda: ("", "n1") not in mirror.items and "MODIFIED n2" in events)
        assert events.count("SYNCED") == 1


async def test_a_broken_watch_resumes_where_it_was(api, client):
    api.add("nodes", node("n1"))
    async with mirrored(client) as (mirror, events):
        for name in ("n2", "n3"):
            await api.until(lambda: api.watching)
            api.cut_watches()
            await api.until(lambda: not api.watching)
            api.add("nodes", node(name))
            await mirror.until(partial(mirror.get, name))
        assert events == ["ADDED n1", "SYNCED", "ADDED n2", "ADDED n3"]
        assert sum(str(request) == "GET nodes" for request in api.requests) == 1  # the mirror has listed once


async def test_a_watch_that_is_refused_for_a_while_resumes_afterwards(api, client):
    async with mirrored(client) as (mirror, events):
        await api.until(lambda: api.watching)
        api.fail("WATCH nodes", 503, "ServiceUnavailable", times=2)
        api.cut_watches()
        await api.until(lambda: not api.watching)
        api.add("nodes", node("n1"))
        await mirror.until(partial(mirror.get, "n1"))
        assert events == ["SYNCED", "ADDED n1"]


async def test_each_refusal_raises_the_error_of_its_code(api, client):
    with pytest.raises(NotFoundError, match="n1"):
        await client.get(NODES, "n1")
    made = await client.create(NODES, node("n1"))
    with pytest.raises(ConflictError):
        await client.create(NODES, node("n1"))
    await client.patch(NODES, "n1", {"metadata": {"labels": {"zone": "b"}}})
    with pytest.raises(ConflictError):
        await client.replace(NODES, made)
    api.fail("GET nodes/n1", 422, "Invalid", "spec: no")
    with pytest.raises(InvalidError, match="spec: no"):
        await client.get(NODES, "n1")
    api.fail("GET nodes/n1", 429, "TooManyRequests", "slowly")
    with pytest.raises(KubeError) as refused:
        await client.get(NODES, "n1")
    assert (refused.value.code, refused.value.reason) == (429, "TooManyRequests")


async def test_an_object_with_another_uid_is_not_deleted(api, client):
    made = await client.create(NODES, node("n1"))
    with pytest.raises(ConflictError):
        await client.delete(NODES, "n1", uid="another")
    await client.delete(NODES, "n1", uid=made["metadata"]["uid"])
    assert await client.list(NODES) == []


async def test_the_error_about_an_unreachable_server_names_the_server(api):
    async with FakeApi() as gone:
        server = gone.url
    async with KubeClient(server) as client:
        with pytest.raises(Unreachable, match=server):
            await client.list(NODES)
        with pytest.raises(Unreachable, match=server):
            await asyncio.wait_for(anext(client.follow(NODES)), 10)

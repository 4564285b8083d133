"""Tests that `Following` includes the caller's own writes at once, and never returns deleted objects."""

import asyncio

import pytest
from aiohttp import web
from background import background
from control_plane import control_plane
from dra_objects import node

from dracpu_sandbox.client import Event
from dracpu_sandbox.following import Following
from dracpu_sandbox.resources import NODES

KEY = ("", "n1")


class Followed(Following):
    """Queues each change."""

    def __init__(self, client):
        super().__init__(client, NODES)
        self.changes: asyncio.Queue[Event] = asyncio.Queue()
        self.listen(self.changes.put_nowait)

    async def seen(self, kind):
        """Waits for the next change of this type."""
        async with asyncio.timeout(10):
            while (await self.changes.get()).type != kind:
                pass


@pytest.fixture
async def plane():
    async with control_plane() as found:
        yield found


async def labelled(plane, value):
    return await plane.client.patch(NODES, "n1", {"metadata": {"labels": {"l": value}}})


def label(following):
    return following.get(KEY)["metadata"]["labels"].get("l")


async def test_an_own_write_is_included_before_the_watch_reports_it(plane) -> None:
    following = Followed(plane.client)
    await plane.add(node("n1"))
    following.wrote(await labelled(plane, "a"))
    assert label(following) == "a"
    assert [item["metadata"]["labels"]["l"] for item in following.all()] == ["a"]


async def test_a_later_change_in_the_watch_replaces_an_own_write(plane) -> None:
    following = Followed(plane.client)
    async with background(following.run()):
        await following.seen("SYNCED")
        await plane.add(node("n1"))
        older = await labelled(plane, "a")
        following.wrote(older)
        await labelled(plane, "b")
        while label(following) != "b":
            await following.seen("MODIFIED")
        following.wrote(older)
        assert label(following) == "b"


async def test_a_write_answered_after_the_deletion_does_not_restore_the_object(plane) -> None:
    following = Followed(plane.client)
    async with background(following.run()):
        await following.seen("SYNCED")
        await plane.add(node("n1"))
        written = await labelled(plane, "a")
        await plane.client.delete(NODES, "n1")
        await following.seen("DELETED")
        following.wrote(written)
        assert following.get(KEY) is None
        assert list(following.all()) == []


async def test_an_own_write_is_dropped_if_the_next_list_does_not_contain_the_object(plane) -> None:
    following = Followed(plane.client)
    await plane.add(node("n1"))
    following.wrote(await labelled(plane, "a"))
    await plane.client.delete(NODES, "n1")
    async with background(following.run()):
        await following.seen("SYNCED")
        assert list(following.all()) == []


async def test_all_objects_are_listed_again_after_an_error(plane) -> None:
    failures = 2

    async def fail(asked, proceed):
        nonlocal failures
        if failures:
            failures -= 1
            return web.json_response({"kind": "Status", "code": 503, "message": "not now"}, status=503)
        return await proceed()

    await plane.add(node("n1"))
    plane.server.around = fail
    following = Followed(plane.client)
    async with background(following.run()):
        await following.seen("SYNCED")
        assert not failures
        assert following.ready
        assert following.get(KEY) is not None

"""What is followed is never behind what was written, nor ahead of what is gone."""

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
    """Tells of each change."""

    def __init__(self, client):
        super().__init__(client, NODES)
        self.changes: asyncio.Queue[Event] = asyncio.Queue()
        self.listen(self.changes.put_nowait)

    async def heard(self, kind):
        """Waits for the next change of this kind."""
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


async def test_a_write_is_known_before_the_watch_tells_of_it(plane) -> None:
    following = Followed(plane.client)
    await plane.add(node("n1"))
    following.wrote(await labelled(plane, "a"))
    assert label(following) == "a"
    assert [one["metadata"]["labels"]["l"] for one in following.all()] == ["a"]


async def test_what_the_watch_tells_later_wins(plane) -> None:
    following = Followed(plane.client)
    async with background(following.run()):
        await following.heard("SYNCED")
        await plane.add(node("n1"))
        older = await labelled(plane, "a")
        following.wrote(older)
        await labelled(plane, "b")
        while label(following) != "b":
            await following.heard("MODIFIED")
        following.wrote(older)
        assert label(following) == "b"


async def test_an_answer_that_comes_after_the_end_brings_nothing_back(plane) -> None:
    following = Followed(plane.client)
    async with background(following.run()):
        await following.heard("SYNCED")
        await plane.add(node("n1"))
        written = await labelled(plane, "a")
        await plane.client.delete(NODES, "n1")
        await following.heard("DELETED")
        following.wrote(written)
        assert following.get(KEY) is None
        assert list(following.all()) == []


async def test_what_is_gone_before_everything_is_listed_again_is_forgotten(plane) -> None:
    following = Followed(plane.client)
    await plane.add(node("n1"))
    following.wrote(await labelled(plane, "a"))
    await plane.client.delete(NODES, "n1")
    async with background(following.run()):
        await following.heard("SYNCED")
        assert list(following.all()) == []


async def test_after_an_error_everything_is_listed_again(plane) -> None:
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
        await following.heard("SYNCED")
        assert not failures
        assert following.ready
        assert following.get(KEY) is not None

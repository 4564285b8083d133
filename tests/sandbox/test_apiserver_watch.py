"""Watches: their events, their start, and their end."""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp
import pytest
from api_caller import CONFIG_MAPS, PODS, Caller, config_map, pod

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


@pytest.fixture
async def api() -> AsyncIterator[Caller]:
    async with Caller() as caller:
        yield caller


class Watching:
    """An open watch."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> dict[str, Any]:
        line = await self._answer.content.readline()
        assert line, "the watch has ended"
        event: dict[str, Any] = json.loads(line)
        return event

    async def events(self, count: int) -> list[tuple[str, str]]:
        """Returns the types and names of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    async def ended(self) -> bool:
        return await self._answer.content.readline() == b""


@contextlib.asynccontextmanager
async def watching(
    api: Caller, path: str = CONFIG_MAPS, headers: dict[str, str] | None = None, **query: str
) -> AsyncGenerator[Watching]:
    async with api.session.get(path, params={"watch": "true", **query}, headers=headers) as answer:
        assert answer.status == 200
        yield Watching(answer)


async def test_changes_after_a_version_are_sent_in_order(api: Caller) -> None:
    version = (await api.create(CONFIG_MAPS, config_map("a")))["metadata"]["resourceVersion"]
    await api.create(CONFIG_MAPS, config_map("b"))
    async with watching(api, resourceVersion=version) as watch:
        await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})
        await api.delete(f"{CONFIG_MAPS}/b")
        assert await watch.events(3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


async def test_a_watch_without_a_version_sends_existing_objects_first(api: Caller) -> None:
    for name in "ba":
        await api.create(CONFIG_MAPS, config_map(name))
    async with watching(api) as watch:
        await api.create(CONFIG_MAPS, config_map("c"))
        assert await watch.events(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_a_bookmark_after_the_existing_objects_is_sent_on_request(api: Caller) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    async with watching(
        api, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    ) as watch:
        assert await watch.events(1) == [("ADDED", "a")]
        mark = await watch.next()
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "ConfigMap"
    metadata = mark["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert metadata["resourceVersion"] == (await api.get(CONFIG_MAPS))["metadata"]["resourceVersion"]


async def test_a_watch_is_limited_to_a_namespace_a_name_and_labels(api: Caller) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    async with (
        watching(api, sendInitialEvents="false") as here,
        watching(api, fieldSelector="metadata.name=b") as named,
        watching(api, "/api/v1/configmaps", labelSelector="l=x") as labelled,
    ):
        await api.create(CONFIG_MAPS.replace("default", "other"), config_map("a", labels={"l": "x"}))
        await api.create(CONFIG_MAPS, config_map("b"))
        await api.create(CONFIG_MAPS, config_map("c", labels={"l": "x"}))
        assert await here.events(2) == [("ADDED", "b"), ("ADDED", "c")]
        assert await named.events(1) == [("ADDED", "b")]
        assert await labelled.events(2) == [("ADDED", "a"), ("ADDED", "c")]


async def test_an_object_that_enters_or_leaves_the_selection_is_added_or_deleted(api: Caller) -> None:
    made = await api.create(PODS, pod("web"))
    async with watching(api, PODS, fieldSelector="spec.nodeName=n1", resourceVersion="0") as watch:
        binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}}
        await api.create(f"{PODS}/web/binding", binding)
        assert await watch.events(1) == [("ADDED", "web")]
    async with watching(api, PODS, labelSelector="!gone", resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        after = await api.patch(f"{PODS}/web", {"metadata": {"labels": {"gone": ""}}})
        assert await watch.events(1) == [("MODIFIED", "web")]
        left = await watch.next()
    assert (left["type"], "labels" in left["object"]["metadata"]) == ("DELETED", False)
    assert left["object"]["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_objects_are_sent_as_tables_on_request(api: Caller) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    async with watching(api, headers=TABLE) as watch:
        table = (await watch.next())["object"]
    assert (table["kind"], table["rows"][0]["cells"][0]) == ("Table", "a")


@pytest.mark.parametrize("since", ["1", "100000"])
async def test_a_version_without_history_is_expired(api: Caller, since: str) -> None:
    api.server.watches.expire()
    async with watching(api, resourceVersion=since) as watch:
        event = await watch.next()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await watch.ended()


async def test_an_open_watch_ends_when_the_history_is_dropped(api: Caller) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    async with watching(api) as watch:
        await watch.next()
        api.server.watches.expire()
        assert (await watch.next())["object"]["code"] == 410
        assert await watch.ended()


async def test_a_watch_ends_when_its_time_is_over(api: Caller) -> None:
    async with watching(api, timeoutSeconds="1") as watch:
        assert await watch.ended()
    assert len(api.server.watches) == 0


async def test_bookmarks_are_sent_on_request_only(api: Caller) -> None:
    async with watching(api, allowWatchBookmarks="true") as with_bookmarks, watching(api) as without_bookmarks:
        await api.create(CONFIG_MAPS, config_map("a"))
        assert await with_bookmarks.events(1) == [("ADDED", "a")]
        api.server.watches.bookmark()
        await api.create(CONFIG_MAPS, config_map("b"))
        assert await with_bookmarks.events(2) == [("BOOKMARK", ""), ("ADDED", "b")]
        assert await without_bookmarks.events(2) == [("ADDED", "a"), ("ADDED", "b")]


async def test_held_events_are_sent_in_order_on_release(api: Caller) -> None:
    async with watching(api) as watch:
        api.server.watches.hold()
        for name in "abc":
            await api.create(CONFIG_MAPS, config_map(name))
        api.server.watches.release()
        assert await watch.events(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_a_cut_watch_ends_with_a_broken_connection(api: Caller) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    async with watching(api) as watch:
        await watch.next()
        api.server.watches.cut()
        with pytest.raises(aiohttp.ClientError):
            await watch.ended()


async def test_an_event_is_watched_and_read_in_both_api_groups(api: Caller) -> None:
    new = "/apis/events.k8s.io/v1/namespaces/default/events"
    event = {"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "web", "namespace": "default"}}
    body = {**event, "reason": "R", "type": "Normal", "action": "A", "eventTime": "2026-01-01T00:00:00.000000Z"}
    report = {"note": "words", "reportingController": "c.dev", "reportingInstance": "c"}
    async with watching(api, "/api/v1/namespaces/default/events") as watch:
        await api.create(new, {**body, **report})
        core = (await watch.next())["object"]
    assert (core["apiVersion"], core["message"], core["involvedObject"]["name"]) == ("v1", "words", "web")
    assert (await api.get(f"{new}/e"))["note"] == "words"

"""A list and a watch that follow one kind of objects, also when they break."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from random import Random

import pytest
from background import background
from fake_api import FakeApi
from kubernetes_asyncio.client import Configuration
from running_operator import QUICK as USUAL

from dracpu_api.resources import Json
from dracpu_operator.api import cluster
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.follow import Follower
from dracpu_operator.known.followers import object_followers

QUICK = replace(USUAL, blind=0.05)


class Watched:
    """The Nodes of a cluster, and the records of them."""

    def __init__(self, api: FakeApi, fleet: Fleet, follower: Follower) -> None:
        self.api = api
        self.fleet = fleet
        self.follower = follower

    def add(self, name: str, **labels: str) -> None:
        self.api.add("nodes", {"metadata": {"name": name, "labels": labels}, "status": {"images": ["x" * 1000] * 9}})

    async def knows(self, *names: str) -> None:
        """Waits until the fleet has these Nodes and no others."""
        async with asyncio.timeout(10):
            while set(self.fleet.nodes) != set(names):
                await self.fleet.changed.wait()
                self.fleet.changed.clear()

    def asked(self, what: str, **query: str) -> int:
        """Returns the number of requests with these parameters."""
        found = (request for request in self.api.requests if str(request) == what)
        return sum(query.items() <= request.query.items() for request in found)


async def eventually(condition: Callable[[], object]) -> None:
    """Waits until the condition holds, of which nothing notifies."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.005)


@pytest.fixture(params=[0.0, 0.02], ids=["each event at once", "events in groups"])
async def watched(request: pytest.FixtureRequest) -> AsyncIterator[Watched]:
    intervals = replace(QUICK, gathering=request.param)
    async with FakeApi() as api, Cluster(Configuration(host=api.url)) as connected:
        fleet = Fleet()
        watched = Watched(api, fleet, object_followers(fleet, connected, intervals)[0])
        watched.add("n0")
        running = asyncio.create_task(watched.follower.run())
        await api.until(lambda: api.watching)
        yield watched
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_created_changed_and_deleted_nodes_are_recorded_from_their_metadata(watched: Watched) -> None:
    watched.add("n1", pool="a")
    await watched.knows("n0", "n1")
    watched.api.edit("nodes", "n1", lambda body: body["metadata"]["labels"].update(pool="b"))
    watched.api.remove("nodes", "n0")
    await watched.knows("n1")
    assert watched.fleet.nodes["n1"].labels == {"pool": "b"}
    accepted = [request.headers["Accept"] for request in watched.api.requests]
    assert all("as=PartialObjectMetadata" in header for header in accepted)


async def test_a_broken_watch_continues_from_the_last_version(watched: Watched) -> None:
    watched.api.bookmark()
    watched.api.cut_watches()
    watched.add("n1")
    watched.api.remove("nodes", "n0")
    await watched.knows("n1")
    assert watched.asked("GET nodes") == 1


async def test_nodes_that_were_deleted_while_the_history_expired_are_removed(watched: Watched) -> None:
    watched.api.hold_watches()
    watched.api.remove("nodes", "n0")
    watched.add("n1")
    watched.api.cut_watches()
    watched.api.expire_watches()
    watched.api.release_watches()
    await watched.api.until(lambda: watched.asked("GET nodes") == 2)
    await watched.knows("n1")


async def test_the_watch_waits_for_an_api_server_that_is_unavailable(watched: Watched) -> None:
    watched.api.fail("(WATCH|GET) nodes", 503, "ServiceUnavailable", times=5)
    watched.api.cut_watches()
    watched.add("n1")
    await watched.knows("n0", "n1")


async def test_a_watch_that_fails_for_some_time_is_reported_until_it_is_accepted_again(watched: Watched) -> None:
    standing = watched.follower.standing
    assert (standing.is_following, standing.trouble()) == (True, "")
    watched.api.fail("WATCH nodes", 503, "ServiceUnavailable", "etcd is away", times=100_000)
    watched.api.cut_watches()
    await eventually(standing.trouble)
    assert re.fullmatch("nodes have not been watched for 0 s: .*etcd is away", standing.trouble())
    watched.api.heal()
    await eventually(lambda: standing.is_following)
    assert standing.trouble() == ""


async def test_objects_that_cannot_be_listed_or_watched_are_reported_from_the_start() -> None:
    async with FakeApi() as api, Cluster(Configuration(host=api.url)) as connected:
        api.fail("GET nodes", 403, "Forbidden", "no lists", times=2)
        api.fail("WATCH nodes", 403, "Forbidden", "no watches", times=2)
        follower = object_followers(Fleet(), connected, QUICK)[0]
        assert follower.standing.trouble() == "nodes have not been listed yet"
        async with background(follower.run()):
            await eventually(lambda: "nodes have not been listed yet: GET" in follower.standing.trouble())
            await eventually(lambda: "no watch of nodes has been accepted yet: WATCH" in follower.standing.trouble())
            await eventually(lambda: follower.standing.is_following)
            assert follower.standing.trouble() == ""


async def test_a_watch_that_stays_silent_is_opened_again_without_a_list(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_SILENCE_SECONDS", 0.05)
    watched.add("n1")
    await watched.knows("n0", "n1")  # from now on the watch waits for a short time only
    watched.api.hold_watches()
    watched.add("n2")
    await watched.api.until(lambda: watched.asked("GET nodes", limit="1") >= 2)
    watched.api.release_watches()
    await watched.knows("n0", "n1", "n2")
    assert watched.asked("GET nodes", limit="500") == 1


async def test_a_watch_that_stays_silent_because_of_a_restore_makes_everything_outdated(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = watched.api.backup()
    monkeypatch.setattr(cluster, "_SILENCE_SECONDS", 0.2)
    for number in range(5):
        watched.add(f"m{number}")
    await watched.knows("n0", *(f"m{number}" for number in range(5)))
    watched.api.hold_watches()
    restore()
    async with asyncio.timeout(10):
        await watched.fleet.outdated.wait()


@pytest.mark.parametrize("watches_break", [True, False])
async def test_a_restored_api_server_makes_everything_that_is_known_outdated(
    watched: Watched, watches_break: bool
) -> None:
    restore = watched.api.backup()
    watched.add("n1")
    await watched.knows("n0", "n1")
    assert not watched.fleet.outdated.is_set()
    restore()
    if watches_break:
        watched.api.cut_watches()
    else:
        watched.api.bookmark()
    async with asyncio.timeout(10):
        await watched.fleet.outdated.wait()


async def test_an_event_in_several_chunks_is_assembled(watched: Watched) -> None:
    watched.add("n1", **{f"label-{number}": "x" * 63 for number in range(4000)})
    await watched.knows("n0", "n1")
    assert len(watched.fleet.nodes["n1"].labels) == 4000


@pytest.mark.parametrize("seed", range(20))
async def test_after_any_faults_the_records_are_those_that_the_api_server_has(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Nodes come, change, go and are created again, while watches break, histories are dropped, pages are refused, and
    answers to writes arrive late."""
    monkeypatch.setattr(cluster, "_METADATA_PAGE", 3)
    monkeypatch.setattr(cluster, "_PAGE_RETRY_SECONDS", 0.001)
    random, api, table = Random(seed), watched.api, watched.fleet.node_table
    faults = [
        api.cut_watches,
        api.expire_watches,
        api.hold_watches,
        api.release_watches,
        api.bookmark,
        lambda: api.fail("GET nodes", 429, "TooManyRequests", retry_after=0, times=random.randint(1, 9)),
        lambda: api.lose_answer("GET nodes", times=2),
    ]
    answers: list[Json] = []  # to writes, not yet received
    for number in range(150):
        present = [node["metadata"]["name"] for node in api.all("nodes")]
        match random.choice(["add", "change", "again", "remove", "fault", "answer", "wait"]):
            case "add":
                watched.add(f"m{number}")
            case "change" if present:
                name = random.choice(present)
                answers.append(
                    api.edit(
                        "nodes",
                        name,
                        lambda body: body["metadata"]["labels"].update(version=body["metadata"]["resourceVersion"]),
                    )
                )
            case "again" if present:
                name = random.choice(present)
                api.remove("nodes", name)
                watched.add(name)
            case "remove" if present:
                api.remove("nodes", random.choice(present))
            case "fault":
                random.choice(faults)()
            case "answer" if answers:
                table.store(answers.pop(random.randrange(len(answers))))
            case "wait":
                await asyncio.sleep(0.005)
    api.heal()
    api.release_watches()
    await eventually(lambda: watched.follower.standing.is_following and versions(watched.fleet) == stored(api))
    for answer in answers:
        table.store(answer)
    assert versions(watched.fleet) == stored(api)
    assert not watched.fleet.outdated.is_set()


def versions(fleet: Fleet) -> set[tuple[str, str, int]]:
    return {(node.name, node.uid, node.version) for node in fleet.nodes.values()}


def stored(api: FakeApi) -> set[tuple[str, str, int]]:
    found = [node["metadata"] for node in api.all("nodes")]
    return {(metadata["name"], metadata["uid"], int(metadata["resourceVersion"])) for metadata in found}

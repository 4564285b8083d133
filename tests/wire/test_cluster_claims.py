"""Claims are read; their device status and Events are told, in nobody's way."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import dra_objects
import pytest
from background import background
from fake_api import FakeApi
from nodes import uid

from dracpu_agent.claims.grant import ClaimRef, CpuGrant
from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.claims import ApiClaimReader, ClaimMissingError
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.device_status import DeviceStatusWriter
from dracpu_agent.cluster.events import EventLimiter, Events, Subject
from dracpu_agent.errors import NotReadyError
from dracpu_api.backoff import Backoff
from dracpu_api.cpuset import CpuSet


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        yield server


@pytest.fixture
async def client(server: FakeApi) -> AsyncIterator[ApiClient]:
    async with ApiClient(ApiAccess(server.url), version="1", request_timeout=5) as client:
        yield client


@pytest.fixture
def writer(client: ApiClient) -> DeviceStatusWriter:
    return DeviceStatusWriter(client, "dra.cpu", backoff=Backoff(0.01, 0.02))


def claim(server: FakeApi, name: str, *granted: CpuGrant) -> ClaimRef:
    """A claim to which the scheduler has allocated what the agent grants."""
    results = [{"request": one.request, **entry(one)} for one in granted]
    made = dra_objects.claim(name, dra_objects.request(count=max(len(granted), 1)))
    added = server.add("resourceclaims", made | {"status": {"allocation": {"devices": {"results": results}}}})
    return ClaimRef("default", name, added["metadata"]["uid"])


def entry(granted: CpuGrant) -> dict[str, Any]:
    """What tells a device of a claim from others."""
    told = {"driver": "dra.cpu", "pool": granted.pool, "device": granted.device}
    return told | ({} if granted.share_id is None else {"shareID": granted.share_id})


def grant(cpus: str, share: str | None = None, device: str = "cpudevnuma000") -> CpuGrant:
    return CpuGrant("main", "n1", device, share, CpuSet.parse(cpus))


def shown(server: FakeApi, name: str) -> Any:
    return server.get("resourceclaims", f"default/{name}")["status"].get("devices")


async def test_a_claim_is_read_within_the_callers_time(server: FakeApi, client: ApiClient) -> None:
    ref = claim(server, "c")
    reader = ApiClaimReader(client, "n1")
    assert (await reader.read(ref, seconds=10))["metadata"]["uid"] == ref.uid
    with pytest.raises(ClaimMissingError):
        await reader.read(ClaimRef("default", "none", uid(1)), seconds=10)
    server.pause()
    with pytest.raises(NotReadyError):
        await reader.read(ref, seconds=0.01)


async def test_owners_see_the_cpus_of_each_device(server: FakeApi, writer: DeviceStatusWriter) -> None:
    shares, whole = [grant("2-3", uid(1)), grant("8", uid(2))], grant("5", device="cpudev005")
    shared, exclusive = claim(server, "shared", *shares), claim(server, "exclusive", whole)
    async with background(writer.run()):
        writer.set(shared, shares)
        writer.set(exclusive, [whole])
        await server.until(lambda: shown(server, "exclusive"))
    device = {"driver": "dra.cpu", "pool": "n1", "device": "cpudevnuma000"}
    assert shown(server, "shared") == [
        device | {"shareID": uid(1), "data": {"cpuset": "2-3"}},
        device | {"shareID": uid(2), "data": {"cpuset": "8"}},
    ]
    assert shown(server, "exclusive") == [
        {"driver": "dra.cpu", "pool": "n1", "device": "cpudev005", "data": {"cpuset": "5"}}
    ]


async def test_the_entries_of_other_drivers_stay(server: FakeApi, writer: DeviceStatusWriter) -> None:
    ours = grant("2-3", uid(1))
    ref, theirs = claim(server, "c", ours), {"driver": "other", "pool": "n1", "device": "x"}

    def prepare(one: dict[str, Any]) -> None:
        one["status"]["allocation"]["devices"]["results"].append({"request": "main", **theirs})
        one["status"]["devices"] = [theirs]

    server.edit("resourceclaims", "default/c", prepare)
    async with background(writer.run()):
        writer.set(ref, [ours])
        await server.until(lambda: len(shown(server, "c")) == 2)
    assert theirs in shown(server, "c")


async def test_a_passing_error_is_tried_again(server: FakeApi, writer: DeviceStatusWriter) -> None:
    server.fail("PATCH", 503, times=3)
    async with background(writer.run()):
        writer.set(claim(server, "c", grant("2")), [grant("2")])
        await server.until(lambda: shown(server, "c"))


@pytest.mark.parametrize("code", [403, 404, 409, 422])
async def test_what_cannot_succeed_is_dropped(server: FakeApi, writer: DeviceStatusWriter, code: int) -> None:
    server.fail("PATCH resourceclaims/first", code)
    async with background(writer.run()):
        writer.set(claim(server, "first", grant("2")), [grant("2")])
        writer.set(claim(server, "second", grant("3")), [grant("3")])
        await server.until(lambda: shown(server, "second"))
        await server.settled()
    assert len(server.written()) == 2


async def test_another_claim_of_the_same_name_is_not_touched(server: FakeApi, writer: DeviceStatusWriter) -> None:
    claim(server, "c", grant("2"))
    async with background(writer.run()):
        writer.set(ClaimRef("default", "c", "uid-of-a-former-claim"), [grant("2")])
        await server.until(server.written)
        await server.settled()
    assert shown(server, "c") is None


async def test_only_the_last_word_on_a_claim_is_written(server: FakeApi, writer: DeviceStatusWriter) -> None:
    ref, unprepared = claim(server, "c", grant("3")), claim(server, "unprepared", grant("9"))
    writer.set(unprepared, [grant("9")])
    writer.set(ref, [grant("2")])
    writer.set(ref, [grant("3")])
    writer.forget(unprepared.uid)
    async with background(writer.run()):
        await server.until(lambda: shown(server, "c"))
        await server.settled()
    assert shown(server, "c")[0]["data"] == {"cpuset": "3"}
    assert len(server.written()) == 1


async def test_a_claim_in_trouble_does_not_hold_up_the_others(server: FakeApi, writer: DeviceStatusWriter) -> None:
    server.fail("PATCH resourceclaims/troubled", 500, times=1_000_000)
    async with background(writer.run()):
        writer.set(claim(server, "troubled", grant("2")), [grant("2")])
        writer.set(claim(server, "c", grant("3")), [grant("3")])
        await server.until(lambda: shown(server, "c"))


def events(client: ApiClient) -> Events:
    clock = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
    return Events(client, "n1", "dracpu-agent", backoff=Backoff(0.01, 0.02), clock=lambda: clock)


async def test_an_event_stands_beside_its_subject(server: FakeApi, client: ApiClient) -> None:
    server.add("namespaces", {"metadata": {"name": "team"}})
    told = events(client)
    told.emit(Subject.claim("team", "c", "u1"), "Warning", "PrepareFailed", "Prepare", "no free CPUs")
    async with background(told.run()):
        await server.until(lambda: server.all("events"))
    (event,) = server.all("events")
    assert event["metadata"]["namespace"] == "team"
    assert event["metadata"]["name"].startswith("c.")
    expected = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-01T12:00:00.000005Z",
        "reportingController": "dracpu-agent",
        "reportingInstance": "n1",
        "type": "Warning",
        "reason": "PrepareFailed",
        "action": "Prepare",
        "note": "no free CPUs",
        "regarding": {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "name": "c",
            "namespace": "team",
            "uid": "u1",
        },
    }
    assert expected.items() <= event.items()


async def test_events_of_cluster_scoped_objects_stand_in_default_and_notes_are_cut(
    server: FakeApi, client: ApiClient
) -> None:
    told = events(client)
    told.emit(Subject.cpu_node("n" * 253), "Normal", "Applied", "Apply", "ü" * 2000)
    async with background(told.run()):
        await server.until(lambda: server.all("events"))
    (event,) = server.all("events")
    assert event["metadata"]["namespace"] == "default"
    assert len(event["metadata"]["name"]) == 253
    assert event["note"] == "ü" * 512


async def test_what_was_told_is_not_repeated(server: FakeApi, client: ApiClient) -> None:
    told = events(client)
    for _ in range(5):
        told.emit(Subject.pod("default", "p", "u"), "Normal", "Pinned", "Create", "CPUs 2-3")
    told.emit(Subject.pod("default", "last", "u"), "Normal", "Pinned", "Create", "CPUs 2-3")
    async with background(told.run()):
        await server.until(lambda: any(one["regarding"]["name"] == "last" for one in server.all("events")))
    assert len(server.all("events")) == 2


async def test_a_passing_error_loses_no_event_and_a_lasting_one_loses_only_its_own(
    server: FakeApi, client: ApiClient
) -> None:
    server.fail("POST events", 503, times=2)
    told = events(client)
    async with background(told.run()):
        told.emit(Subject.cpu_node("n1"), "Normal", "First", "Test", "x")
        await server.until(lambda: len(server.all("events")) == 1)
        server.fail("POST events", 403)
        server.fail("POST events", 503, times=3)
        for reason in ("Refused", "Unsent", "Last"):
            told.emit(Subject.cpu_node("n1"), "Normal", reason, "Test", "x")
        await server.until(lambda: len(server.all("events")) == 2)
    assert {one["reason"] for one in server.all("events")} == {"First", "Last"}


async def test_a_flood_waits_for_nobody_and_is_cut_short(server: FakeApi, client: ApiClient) -> None:
    told = Events(client, "n1", "dracpu-agent", limiter=EventLimiter(remembered=10_000))
    for number in range(1_000):
        told.emit(Subject.cpu_node(f"n{number}"), "Normal", "Flood", "Test", "x")
    async with background(told.run()):
        await server.until(lambda: len(server.requests) == 256)
        await server.settled()
    assert len(server.all("events")) == 256

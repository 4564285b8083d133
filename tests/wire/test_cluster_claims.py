"""Claims are read; their device status and Events are written in the background."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import dra_objects
import pytest
from background import background
from fake_api import FakeApi
from nodes import uid
from scripted_http import answering, scripted

from dracpu_agent.claims.cpu_claim import CpuGrant
from dracpu_agent.claims.grant import ClaimRef
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
    return DeviceStatusWriter(client, "dra.cpu", backoff=Backoff(0.01, 0.02), pauses=Backoff(0.01, 0.01))


def claim(server: FakeApi, name: str, *granted: CpuGrant) -> ClaimRef:
    """A claim whose allocation contains the devices of these grants."""
    results = [{"request": device.request, **entry(device)} for device in granted]
    made = dra_objects.claim(name, dra_objects.request(count=max(len(granted), 1)))
    added = server.add("resourceclaims", made | {"status": {"allocation": {"devices": {"results": results}}}})
    return ClaimRef("default", name, added["metadata"]["uid"])


def entry(granted: CpuGrant) -> dict[str, Any]:
    """The fields that identify a device of a claim."""
    device = {"driver": "dra.cpu", "pool": granted.pool, "device": granted.device}
    return device | ({} if granted.share_id is None else {"shareID": granted.share_id})


def grant(cpus: str, share: str | None = None, device: str = "cpudevnuma000") -> CpuGrant:
    return CpuGrant(request="main", pool="n1", device=device, share_id=share, cpus=CpuSet.parse(cpus))


def device_statuses(server: FakeApi, name: str) -> Any:
    return server.get("resourceclaims", f"default/{name}")["status"].get("devices")


async def test_a_claim_is_read_within_the_callers_timeout(server: FakeApi, client: ApiClient) -> None:
    ref = claim(server, "c")
    reader = ApiClaimReader(client, "n1")
    assert (await reader.read(ref, seconds=10))["metadata"]["uid"] == ref.uid
    with pytest.raises(ClaimMissingError):
        await reader.read(ClaimRef("default", "none", uid(1)), seconds=10)
    server.pause()
    with pytest.raises(NotReadyError):
        await reader.read(ref, seconds=0.01)


def page(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def status_about(name: str, plural: str = "resourceclaims") -> bytes:
    details = {"name": name, "group": "resource.k8s.io", "kind": plural}
    status = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "details": details, "code": 404}
    return page("404 Not Found", json.dumps(status).encode())


@pytest.mark.parametrize(
    "answer",
    [
        page("404 Not Found", b"<html><h1>404 Not Found</h1></html>"),
        page("404 Not Found", b"404 page not found\n"),
        page("404 Not Found", b"default backend - 404"),
        page("404 Not Found", b""),
        page("404 Not Found", b'{"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "details": {}}'),
        status_about("default", "namespaces"),
        status_about("another"),
        page("200 OK", b'{"status": "ok"}'),
        page("200 OK", b'{"kind": "ResourceClaim", "metadata": {"name": "another", "uid": "u"}}'),
    ],
)
async def test_an_answer_that_does_not_name_the_claim_never_means_that_it_is_gone(answer: bytes) -> None:
    async with (
        scripted(answering(answer)) as server,
        ApiClient(ApiAccess(f"http://127.0.0.1:{server.port}"), version="1") as client,
    ):
        with pytest.raises(NotReadyError, match="claim default/c cannot be read"):
            await ApiClaimReader(client, "n1").read_if_there(ClaimRef("default", "c", uid(1)), seconds=10)


async def test_a_claim_is_gone_when_the_api_server_reports_it_by_its_name() -> None:
    async with (
        scripted(answering(status_about("c"))) as server,
        ApiClient(ApiAccess(f"http://127.0.0.1:{server.port}"), version="1") as client,
    ):
        assert await ApiClaimReader(client, "n1").read_if_there(ClaimRef("default", "c", uid(1)), seconds=10) is None


async def test_the_status_of_a_claim_shows_the_cpus_of_each_device(server: FakeApi, writer: DeviceStatusWriter) -> None:
    shares, whole = [grant("2-3", uid(1)), grant("8", uid(2))], grant("5", device="cpudev005")
    shared, exclusive = claim(server, "shared", *shares), claim(server, "exclusive", whole)
    async with background(writer.run()):
        writer.set(shared, shares)
        writer.set(exclusive, [whole])
        await server.until(lambda: device_statuses(server, "exclusive"))
    device = {"driver": "dra.cpu", "pool": "n1", "device": "cpudevnuma000"}
    assert device_statuses(server, "shared") == [
        device | {"shareID": uid(1), "data": {"cpuset": "2-3"}},
        device | {"shareID": uid(2), "data": {"cpuset": "8"}},
    ]
    assert device_statuses(server, "exclusive") == [
        {"driver": "dra.cpu", "pool": "n1", "device": "cpudev005", "data": {"cpuset": "5"}}
    ]


async def test_the_entries_of_other_drivers_stay(server: FakeApi, writer: DeviceStatusWriter) -> None:
    ours = grant("2-3", uid(1))
    ref, theirs = claim(server, "c", ours), {"driver": "other", "pool": "n1", "device": "x"}

    def prepare(stored: dict[str, Any]) -> None:
        stored["status"]["allocation"]["devices"]["results"].append({"request": "main", **theirs})
        stored["status"]["devices"] = [theirs]

    server.edit("resourceclaims", "default/c", prepare)
    async with background(writer.run()):
        writer.set(ref, [ours])
        await server.until(lambda: len(device_statuses(server, "c")) == 2)
    assert theirs in device_statuses(server, "c")


async def test_a_write_is_retried_after_a_temporary_error(server: FakeApi, writer: DeviceStatusWriter) -> None:
    server.fail("PATCH", 503, times=3)
    async with background(writer.run()):
        writer.set(claim(server, "c", grant("2")), [grant("2")])
        await server.until(lambda: device_statuses(server, "c"))


@pytest.mark.parametrize(("code", "attempts"), [(403, 1), (409, 1), (422, 2)])
async def test_a_write_that_cannot_succeed_is_dropped(
    server: FakeApi, writer: DeviceStatusWriter, code: int, attempts: int
) -> None:
    server.fail("PATCH resourceclaims/first", code, times=attempts)
    async with background(writer.run()):
        writer.set(claim(server, "first", grant("2")), [grant("2")])
        writer.set(claim(server, "second", grant("3")), [grant("3")])
        await server.until(lambda: device_statuses(server, "second"))
        await server.until_idle()
    assert len(server.written()) == attempts + 1


async def test_entries_that_server_side_apply_cannot_write_are_patched(
    server: FakeApi, writer: DeviceStatusWriter
) -> None:
    shares = [grant("2", uid(1)), grant("3", uid(2))]
    ref = claim(server, "c", *shares)
    async with background(writer.run()):
        for grants in (shares[1:], shares, [grant("8", uid(1))]):
            await patched(server, writer, ref, grants)


async def test_patched_entries_leave_those_of_other_drivers(server: FakeApi, writer: DeviceStatusWriter) -> None:
    ours = grant("2-3", uid(1))
    ref, theirs = claim(server, "c", ours), {"driver": "other", "pool": "n1", "device": "x"}

    def prepare(stored: dict[str, Any]) -> None:
        stored["status"]["allocation"]["devices"]["results"].append({"request": "main", **theirs})
        stored["status"]["devices"] = [theirs]

    server.edit("resourceclaims", "default/c", prepare)
    async with background(writer.run()):
        for granted in (ours, grant("8", uid(1))):
            await patched(server, writer, ref, [granted], theirs)


async def patched(
    server: FakeApi, writer: DeviceStatusWriter, ref: ClaimRef, grants: list[CpuGrant], *others: dict[str, Any]
) -> None:
    """Waits until a claim has the entries of these grants, although server-side apply is refused."""
    server.fail(f"PATCH resourceclaims/{ref.name}", 422)
    writer.set(ref, grants)
    wanted = [*others, *({**entry(granted), "data": {"cpuset": str(granted.cpus)}} for granted in grants)]
    await server.until(lambda: device_statuses(server, ref.name) == wanted)


async def test_entries_are_patched_again_when_the_claim_has_changed_since_it_was_read(
    server: FakeApi, writer: DeviceStatusWriter
) -> None:
    ref = claim(server, "c", grant("2"))
    for code in (422, 409, 422):
        server.fail("PATCH resourceclaims/c", code)
    async with background(writer.run()):
        writer.set(ref, [grant("2")])
        await server.until(lambda: device_statuses(server, "c"))
    assert len(server.written()) == 4


async def test_entries_are_not_patched_into_another_claim_of_the_same_name(
    server: FakeApi, writer: DeviceStatusWriter
) -> None:
    claim(server, "c", grant("2"))
    server.fail("PATCH resourceclaims/c", 422)
    async with background(writer.run()):
        writer.set(ClaimRef("default", "c", "uid-of-a-former-claim"), [grant("2")])
        await server.until(lambda: any(request.verb == "get" for request in server.requests))
        await server.until_idle()
    assert device_statuses(server, "c") is None
    assert len(server.written()) == 1


async def test_entries_that_are_there_already_are_not_patched(server: FakeApi, writer: DeviceStatusWriter) -> None:
    ref = claim(server, "c", grant("2"))
    async with background(writer.run()):
        writer.set(ref, [grant("2")])
        await server.until(lambda: device_statuses(server, "c"))
        server.fail("PATCH resourceclaims/c", 422)
        writer.set(ref, [grant("2")])
        await server.until(lambda: any(request.verb == "get" for request in server.requests))
        await server.until_idle()
    assert len(server.written()) == 2


async def test_the_status_of_a_claim_that_was_deleted_is_dropped(server: FakeApi, writer: DeviceStatusWriter) -> None:
    gone, second = claim(server, "gone", grant("2")), claim(server, "second", grant("3"))
    server.remove("resourceclaims", "default/gone")
    async with background(writer.run()):
        writer.set(gone, [grant("2")])
        writer.set(second, [grant("3")])
        await server.until(lambda: device_statuses(server, "second"))
        await server.until_idle()
    assert len(server.written()) == 2


async def test_a_write_is_retried_after_a_404_that_does_not_name_the_claim(
    server: FakeApi, writer: DeviceStatusWriter
) -> None:
    server.fail("PATCH", 404, "NotFound", "the server could not find the requested resource", times=3)
    async with background(writer.run()):
        writer.set(claim(server, "c", grant("2")), [grant("2")])
        await server.until(lambda: device_statuses(server, "c"))


async def test_another_claim_of_the_same_name_is_not_changed(server: FakeApi, writer: DeviceStatusWriter) -> None:
    claim(server, "c", grant("2"))
    async with background(writer.run()):
        writer.set(ClaimRef("default", "c", "uid-of-a-former-claim"), [grant("2")])
        await server.until(server.written)
        await server.until_idle()
    assert device_statuses(server, "c") is None


async def test_only_the_latest_grants_of_a_claim_are_written(server: FakeApi, writer: DeviceStatusWriter) -> None:
    ref, unprepared = claim(server, "c", grant("3")), claim(server, "unprepared", grant("9"))
    writer.set(unprepared, [grant("9")])
    writer.set(ref, [grant("2")])
    writer.set(ref, [grant("3")])
    writer.forget(unprepared.uid)
    async with background(writer.run()):
        await server.until(lambda: device_statuses(server, "c"))
        await server.until_idle()
    assert device_statuses(server, "c")[0]["data"] == {"cpuset": "3"}
    assert len(server.written()) == 1


async def test_a_claim_whose_write_fails_does_not_delay_the_others(server: FakeApi, writer: DeviceStatusWriter) -> None:
    server.fail("PATCH resourceclaims/failing", 500, times=1_000_000)
    async with background(writer.run()):
        writer.set(claim(server, "failing", grant("2")), [grant("2")])
        writer.set(claim(server, "c", grant("3")), [grant("3")])
        await server.until(lambda: device_statuses(server, "c"))


async def test_repeated_statuses_are_written_one_after_a_pause_and_after_new_ones(
    server: FakeApi, client: ApiClient
) -> None:
    writer = DeviceStatusWriter(client, "dra.cpu", pauses=Backoff(1e9, 1e9, jitter=lambda low, high: next(pauses)))
    pauses = iter((0.0, 0.0, 1e9))
    for name in ("a", "b", "c", "d"):
        writer.repeat(claim(server, name, grant("2")), [grant("2")])
    unprepared = claim(server, "unprepared", grant("2"))
    writer.repeat(unprepared, [grant("2")])
    writer.forget(unprepared.uid)
    writer.set(claim(server, "new", grant("3")), [grant("3")])
    async with background(writer.run()):
        await server.until(lambda: device_statuses(server, "b"))
        await server.until_idle()
    assert [request.name for request in server.requests] == ["new", "a", "b"]


async def test_a_repeated_status_does_not_change_a_claim_that_has_it(
    server: FakeApi, writer: DeviceStatusWriter
) -> None:
    ref = claim(server, "c", grant("2"))
    async with background(writer.run()):
        writer.set(ref, [grant("2")])
        await server.until(lambda: device_statuses(server, "c"))
        before = server.get("resourceclaims", "default/c")
        writer.repeat(ref, [grant("2")])
        await server.until(lambda: len(server.written()) == 2)
        await server.until_idle()
    assert server.get("resourceclaims", "default/c") == before


def events_of_n1(client: ApiClient) -> Events:
    clock = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
    return Events(client, "n1", "dracpu-agent", backoff=Backoff(0.01, 0.02), clock=lambda: clock)


async def test_an_event_names_its_subject_reason_and_action(server: FakeApi, client: ApiClient) -> None:
    events = events_of_n1(client)
    events.emit(Subject.cpu_node("n1"), "Warning", "SettingsRefused", "Configure", "reservedCPUs 64: no such CPU")
    async with background(events.run()):
        await server.until(lambda: server.all("events"))
    (event,) = server.all("events")
    assert event["metadata"]["namespace"] == "default"
    assert event["metadata"]["name"].startswith("n1.")
    expected = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-01T12:00:00.000005Z",
        "reportingController": "dracpu-agent",
        "reportingInstance": "n1",
        "type": "Warning",
        "reason": "SettingsRefused",
        "action": "Configure",
        "note": "reservedCPUs 64: no such CPU",
        "regarding": {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuNode", "name": "n1"},
    }
    assert expected.items() <= event.items()


async def test_long_names_and_notes_of_events_are_truncated(server: FakeApi, client: ApiClient) -> None:
    events = events_of_n1(client)
    events.emit(Subject.cpu_node("n" * 253), "Normal", "Applied", "Apply", "ü" * 2000)
    async with background(events.run()):
        await server.until(lambda: server.all("events"))
    (event,) = server.all("events")
    assert len(event["metadata"]["name"]) == 253
    assert event["note"] == "ü" * 512


async def test_a_repeated_event_is_sent_once(server: FakeApi, client: ApiClient) -> None:
    events = events_of_n1(client)
    for _ in range(5):
        events.emit(Subject.cpu_node("n1"), "Normal", "Applied", "Apply", "x")
    events.emit(Subject.cpu_node("n1"), "Normal", "Last", "Apply", "x")
    async with background(events.run()):
        await server.until(lambda: any(event["reason"] == "Last" for event in server.all("events")))
    assert len(server.all("events")) == 2


async def test_an_event_is_retried_after_temporary_errors_and_dropped_after_others(
    server: FakeApi, client: ApiClient
) -> None:
    server.fail("POST events", 503, times=2)
    events = events_of_n1(client)
    async with background(events.run()):
        events.emit(Subject.cpu_node("n1"), "Normal", "First", "Test", "x")
        await server.until(lambda: len(server.all("events")) == 1)
        server.fail("POST events", 403)
        server.fail("POST events", 503, times=3)
        for reason in ("Refused", "Unsent", "Last"):
            events.emit(Subject.cpu_node("n1"), "Normal", reason, "Test", "x")
        await server.until(lambda: len(server.all("events")) == 2)
    assert {event["reason"] for event in server.all("events")} == {"First", "Last"}


async def test_events_beyond_the_queues_size_are_dropped(server: FakeApi, client: ApiClient) -> None:
    events = Events(client, "n1", "dracpu-agent", limiter=EventLimiter(remembered=10_000))
    for number in range(1_000):
        events.emit(Subject.cpu_node(f"n{number}"), "Normal", "Flood", "Test", "x")
    async with background(events.run()):
        await server.until(lambda: len(server.requests) == 256)
        await server.until_idle()
    assert len(server.all("events")) == 256

"""The API client over real HTTP: verbs, errors, timeouts, TLS, watches."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dra_objects
import pytest
from background import background
from dra_objects import single, slice_of
from fake_api import FakeApi
from nodes import spec
from tls_material import CERTIFICATE, KEY

from dracpu_agent.cluster.access import ApiAccess, TokenFile
from dracpu_agent.cluster.client import ApiClient
from dracpu_api.answers import WatchEvent
from dracpu_api.errors import (
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotServedError,
    UnavailableError,
)
from dracpu_api.resources import CPU_NODES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES, resource_version
from dracpu_api.settings import encode_spec


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    async with FakeApi() as server:
        yield server


@pytest.fixture
async def client(server: FakeApi) -> AsyncIterator[ApiClient]:
    async with ApiClient(ApiAccess(server.url), version="1.2", request_timeout=5) as client:
        yield client


def add_cpu_node(server: FakeApi, **status: Any) -> None:
    server.add("cpunodes", {"metadata": {"name": "n1"}, "spec": encode_spec(spec()), "status": status})


async def test_an_object_is_read_by_name_and_namespace(server: FakeApi, client: ApiClient) -> None:
    made = server.add("resourceclaims", dra_objects.claim("c", dra_objects.request()))
    assert await client.get(RESOURCE_CLAIMS, "c", namespace="default") == made
    assert server.requests[-1].headers["User-Agent"] == "dracpu-agent/1.2"


async def test_a_request_for_metadata_only_says_so_in_its_accept_header(server: FakeApi, client: ApiClient) -> None:
    server.add("nodes", {"metadata": {"name": "n1"}})
    await client.get(NODES, "n1", metadata_only=True)
    assert "as=PartialObjectMetadata" in server.requests[-1].headers["Accept"]


async def test_an_object_may_be_read_from_the_servers_cache(server: FakeApi, client: ApiClient) -> None:
    made = server.add("nodes", {"metadata": {"name": "n1"}})
    assert await client.get(NODES, "n1", from_cache=True) == made
    assert server.requests[-1].query == {"resourceVersion": "0"}
    await client.get(NODES, "n1")
    assert not server.requests[-1].query


async def test_a_field_selector_narrows_a_list(server: FakeApi, client: ApiClient) -> None:
    for node in ("n1", "n2"):
        server.add("resourceslices", slice_of(node, [], name=node))
    answer = await client.list(RESOURCE_SLICES, field_selector="spec.nodeName=n2,spec.driver=dra.cpu")
    assert [item["metadata"]["name"] for item in answer["items"]] == ["n2"]


async def test_a_dry_run_returns_the_object_and_stores_nothing(server: FakeApi, client: ApiClient) -> None:
    body = slice_of("n1", []) | {"metadata": {"generateName": "s-"}}
    answer = await client.create(RESOURCE_SLICES, body, dry_run=True)
    assert answer["metadata"]["name"].startswith("s-")
    assert server.all("resourceslices") == []


async def test_replacing_an_outdated_object_is_a_conflict(server: FakeApi, client: ApiClient) -> None:
    read = server.add("resourceslices", slice_of("n1", [], name="s"))
    first, second = (read | {"spec": slice_of("n1", [single(cpu)])["spec"]} for cpu in (1, 2))
    await client.replace(RESOURCE_SLICES, first)
    with pytest.raises(ConflictError):
        await client.replace(RESOURCE_SLICES, second)
    assert server.get("resourceslices", "s")["spec"] == first["spec"]


async def test_a_merge_patch_changes_the_fields_in_it(server: FakeApi, client: ApiClient) -> None:
    add_cpu_node(server, phase="Ready", claimsTotal=2)
    patch = {"status": {"phase": None, "agentVersion": "3"}}
    answer = await client.merge_patch(CPU_NODES, "n1", patch, subresource="status")
    assert answer["status"] == {"claimsTotal": 2, "agentVersion": "3"}


async def test_an_apply_deletes_fields_that_only_the_previous_apply_had(server: FakeApi, client: ApiClient) -> None:
    add_cpu_node(server, agentVersion="theirs")
    for status in ({"phase": "Ready", "claimsTotal": 2}, {"claimsTotal": 3}):
        await client.apply(CPU_NODES, {"metadata": {"name": "n1"}, "status": status}, subresource="status")
    assert server.get("cpunodes", "n1")["status"] == {"agentVersion": "theirs", "claimsTotal": 3}
    assert server.requests[-1].query == {"fieldManager": "dracpu-agent", "force": "true"}
    assert server.requests[-1].body["kind"] == "CpuNode"


async def test_deleting_an_outdated_object_is_a_conflict(server: FakeApi, client: ApiClient) -> None:
    read = server.add("resourceslices", slice_of("n1", [], name="s"))["metadata"]
    now = server.edit("resourceslices", "s", lambda stored: stored["spec"].update(devices=[single(1)]))["metadata"]
    for uid, version in (("another", now["resourceVersion"]), (read["uid"], read["resourceVersion"])):
        with pytest.raises(ConflictError):
            await client.delete(RESOURCE_SLICES, "s", uid=uid, resource_version=version)
    await client.delete(RESOURCE_SLICES, "s", uid=now["uid"], resource_version=now["resourceVersion"])
    assert server.all("resourceslices") == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, InvalidError),
        (401, ForbiddenError),
        (403, ForbiddenError),
        (404, NotServedError),
        (409, ConflictError),
        (410, ExpiredError),
        (422, InvalidError),
        (429, UnavailableError),
        (500, UnavailableError),
        (503, UnavailableError),
    ],
)
async def test_each_error_code_has_its_type(
    server: FakeApi, client: ApiClient, code: int, kind: type[ApiError]
) -> None:
    server.fail("GET nodes/n1", code, "SomeReason", "some message", retry_after=7)
    with pytest.raises(kind) as caught:
        await client.get(NODES, "n1")
    assert (caught.value.reason, caught.value.retry_after) == ("SomeReason", 7)
    assert str(caught.value) == "get nodes n1: SomeReason: some message"


async def test_a_server_that_does_not_answer_in_time_is_unavailable(server: FakeApi, client: ApiClient) -> None:
    server.pause()
    with pytest.raises(UnavailableError, match=r"no answer within 0\.05 s"):
        await client.get(NODES, "n1", seconds=0.05)


async def test_a_server_that_cannot_be_reached_is_unavailable() -> None:
    async with FakeApi() as server:
        url = server.url
    async with ApiClient(ApiAccess(url), version="1") as client:
        with pytest.raises(UnavailableError, match="get nodes n1"):
            await client.get(NODES, "n1")


async def test_a_replaced_token_is_used_and_no_error_contains_it(server: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-secret")
    server.tokens = {"first-secret"}
    server.add("nodes", {"metadata": {"name": "n1"}})
    async with ApiClient(ApiAccess(server.url, token=TokenFile(file)), version="1") as client:
        await client.get(NODES, "n1")
        server.tokens = {"second-secret"}
        with pytest.raises(ForbiddenError) as caught:
            await client.get(NODES, "n1")
        assert "secret" not in str(caught.value) + repr(caught.value)
        (tmp_path / "next").write_text("second-secret")
        (tmp_path / "next").replace(file)
        await client.get(NODES, "n1")
        file.unlink()
        with pytest.raises(UnavailableError, match="cannot read the token"):
            await client.get(NODES, "n1")


async def test_tls_is_verified_against_the_given_authority(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    pem.write_text(CERTIFICATE + KEY)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(pem)
    async with FakeApi(tls=own) as server:
        server.add("nodes", {"metadata": {"name": "n1"}})
        trusting = ApiAccess(server.url, tls=lambda: ssl.create_default_context(cadata=CERTIFICATE))
        async with ApiClient(trusting, version="1") as client:
            assert (await client.get(NODES, "n1"))["metadata"]["name"] == "n1"
        by_name = ApiAccess(server.url, tls=trusting.tls, server_name="api.test")
        async with ApiClient(by_name, version="1") as client:
            await client.get(NODES, "n1")
        async with ApiClient(ApiAccess(server.url, tls=ssl.create_default_context), version="1") as client:
            with pytest.raises(UnavailableError, match="certificate"):
                await client.get(NODES, "n1")
        # a name that the certificate does not have
        other = ApiAccess(server.url, tls=trusting.tls, server_name="other.test")
        async with ApiClient(other, version="1") as client:
            with pytest.raises(UnavailableError, match="certificate"):
                await client.get(NODES, "n1")


class Watch:
    """A watch whose events a test reads one by one."""

    def __init__(self, client: ApiClient, since: int, selector: str = "") -> None:
        self._events = client.watch(NODES, resource_version=since, field_selector=selector)
        self.received: asyncio.Queue[WatchEvent] = asyncio.Queue()

    async def run(self) -> None:
        async with contextlib.aclosing(self._events) as events:
            async for event in events:
                self.received.put_nowait(event)


async def test_a_watch_returns_the_changes_after_a_revision(server: FakeApi, client: ApiClient) -> None:
    server.add("nodes", {"metadata": {"name": "before"}})
    since = resource_version(await client.list(NODES))
    server.add("nodes", {"metadata": {"name": "n1"}})
    watch = Watch(client, since, "metadata.name=n1")
    async with background(watch.run()):
        assert (await watch.received.get()).type == "ADDED"
        server.add("nodes", {"metadata": {"name": "other"}})
        server.edit("nodes", "n1", lambda node: node["metadata"].update(labels={"a": "b"}))
        assert (await watch.received.get()).object["metadata"]["labels"] == {"a": "b"}
        server.remove("nodes", "n1")
        assert (await watch.received.get()).type == "DELETED"
        server.bookmark()
        bookmark = await watch.received.get()
        assert bookmark.type == "BOOKMARK"
        assert resource_version(bookmark.object) > since
    await server.until(lambda: server.watching == 0)  # cancelled: the connection is closed, not leaked


async def test_an_object_in_a_watch_may_have_megabytes(server: FakeApi, client: ApiClient) -> None:
    server.add("nodes", {"metadata": {"name": "n1", "annotations": {"a": "x" * 3_000_000}}})
    watch = Watch(client, 0)
    async with background(watch.run()):
        event = await watch.received.get()
        assert len(event.object["metadata"]["annotations"]["a"]) == 3_000_000


async def test_a_watch_from_a_revision_that_is_too_old_is_an_expired_error(server: FakeApi, client: ApiClient) -> None:
    server.expire_watches()
    with pytest.raises(ExpiredError):
        await Watch(client, 1).run()


async def test_a_watch_on_which_nothing_arrives_is_unavailable(server: FakeApi) -> None:
    async with ApiClient(ApiAccess(server.url), version="1", watch_silence=0.05) as client:
        with pytest.raises(UnavailableError, match=r"sent nothing for \S+ s"):
            await Watch(client, 1).run()


async def test_a_watch_whose_connection_is_lost_is_unavailable(server: FakeApi, client: ApiClient) -> None:
    watching = asyncio.create_task(Watch(client, 1).run())
    await server.until(lambda: server.watching)
    server.cut_watches()
    with pytest.raises(UnavailableError, match="watch nodes"):
        await watching


async def test_a_refused_watch_is_a_typed_error(server: FakeApi, client: ApiClient) -> None:
    server.fail("WATCH nodes", 403)
    with pytest.raises(ForbiddenError):
        await Watch(client, 1).run()

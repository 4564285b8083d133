"""Whom the server answers, in which form, and what may stand around its requests."""

import io
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
import yaml
from aiohttp import web
from api_caller import CONFIG_MAPS, Caller, config_map

from dracpu_sandbox.apiserver.errors import PortTakenError
from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.apiserver.request import Request
from dracpu_sandbox.apiserver.server import ApiServer, CutOffError

Proceed = Callable[[], Awaitable[web.StreamResponse]]


@pytest.fixture
async def api() -> AsyncIterator[Caller]:
    async with Caller() as caller:
        yield caller


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.dev"}, {"Host": "evil.dev"}, {"Host": "evil.dev:80"}])
async def test_a_page_in_a_browser_is_not_served(api: Caller, headers: dict[str, str]) -> None:
    answered = await api.call("GET", CONFIG_MAPS, headers=headers)
    assert (answered.code, answered.body["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize("host", ["localhost", "localhost:80", "127.0.0.1", "[::1]:80"])
async def test_who_asks_at_loopback_is_served(api: Caller, host: str) -> None:
    assert (await api.call("GET", CONFIG_MAPS, headers={"Host": host})).code == 200


async def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"cannot serve on port {port}"):
            async with ApiServer(port):
                pass


async def test_the_kubeconfig_leads_to_it(api: Caller) -> None:
    config = yaml.safe_load(yaml.safe_dump(api.server.kubeconfig()))
    assert config["clusters"][0]["cluster"]["server"] == api.server.url
    assert api.server.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    "accept, kind",
    [
        ("", "ConfigMapList"),
        ("*/*", "ConfigMapList"),
        ("application/vnd.kubernetes.protobuf,application/json", "ConfigMapList"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "ConfigMapList"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Table"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "PartialObjectMetadataList"),
    ],
)
async def test_lists_come_in_the_form_that_is_wanted(api: Caller, accept: str, kind: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    answered = await api.call("GET", CONFIG_MAPS, headers={"Accept": accept})
    assert answered.body["kind"] == kind
    items = answered.body.get("items") or []
    assert all(("data" in one) is (kind == "ConfigMapList") for one in items)


async def test_a_table_has_the_metadata_of_its_objects_or_what_is_wanted(api: Caller) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    kinds = []
    for include in ("Metadata", "Object"):
        answered = await api.call("GET", CONFIG_MAPS, headers=table, includeObject=include)
        kinds.append(answered.body["rows"][0]["object"]["kind"])
    assert kinds == ["PartialObjectMetadata", "ConfigMap"]
    assert "object" not in (await api.call("GET", CONFIG_MAPS, headers=table, includeObject="None")).body["rows"][0]
    assert (await api.call("GET", CONFIG_MAPS, headers=table, includeObject="All")).code == 400


async def test_a_form_that_it_does_not_have_is_refused(api: Caller) -> None:
    answered = await api.call("GET", CONFIG_MAPS, headers={"Accept": "text/html"})
    assert (answered.code, answered.body["reason"]) == (406, "NotAcceptable")


async def test_a_body_that_is_too_large_is_refused(api: Caller) -> None:
    async with api.session.post(CONFIG_MAPS, data=io.BytesIO(b" " * (3 * 2**20 + 1))) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_body_in_protobuf_is_refused_with_the_way_around(api: Caller) -> None:
    protobuf = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    answered = await api.call("POST", CONFIG_MAPS, b"k8s\x00", headers=protobuf)
    assert (answered.code, answered.body["reason"]) == (415, "UnsupportedMediaType")
    assert "--dry-run=client -o yaml" in answered.body["message"]


async def test_requests_can_be_refused_from_around(api: Caller) -> None:
    seen = []

    async def around(request: Request, proceed: Proceed) -> web.StreamResponse:
        seen.append(str(request))
        if request.method == "POST":
            raise RefusedError(429, "TooManyRequests", "slowly", retry_after=3)
        return await proceed()

    api.server.around = around
    refused = await api.call("POST", CONFIG_MAPS, config_map("a"))
    assert (refused.code, refused.headers["Retry-After"]) == (429, "3")
    assert refused.body["details"] == {"retryAfterSeconds": 3}
    assert await api.names(CONFIG_MAPS) == []
    assert seen == ["POST configmaps", "GET configmaps"]


async def test_an_answer_can_be_lost(api: Caller) -> None:
    async def around(request: Request, proceed: Proceed) -> web.StreamResponse:
        await proceed()
        raise CutOffError

    api.server.around = around
    with pytest.raises(aiohttp.ClientError):
        await api.call("POST", CONFIG_MAPS, config_map("a"))
    api.server.around = None
    assert await api.names(CONFIG_MAPS) == ["a"]

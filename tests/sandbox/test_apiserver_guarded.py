"""The server refuses requests from web pages, and answers in the form that a client requests."""

import io
import socket
from collections.abc import AsyncIterator

import pytest
from api_caller import CONFIG_MAPS, Caller, config_map

from dracpu_sandbox.apiserver.server import ApiServer, PortTakenError


@pytest.fixture
async def api() -> AsyncIterator[Caller]:
    async with Caller() as caller:
        yield caller


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.dev"}, {"Host": "evil.dev"}, {"Host": "evil.dev:80"}])
async def test_a_request_from_a_web_page_is_refused(api: Caller, headers: dict[str, str]) -> None:
    answered = await api.call("GET", CONFIG_MAPS, headers=headers)
    assert (answered.code, answered.body["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize("host", ["localhost", "localhost:80", "127.0.0.1", "[::1]:80"])
async def test_a_request_to_loopback_is_served(api: Caller, host: str) -> None:
    assert (await api.call("GET", CONFIG_MAPS, headers={"Host": host})).code == 200


async def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"cannot serve on port {port}"):
            async with ApiServer(port):
                pass


@pytest.mark.parametrize(
    "accept, kind",
    [
        ("", "ConfigMapList"),
        ("application/vnd.kubernetes.protobuf,application/json", "ConfigMapList"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "ConfigMapList"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Table"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "PartialObjectMetadataList"),
    ],
)
async def test_a_list_has_the_first_supported_form_of_the_accept_header(api: Caller, accept: str, kind: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    answered = await api.call("GET", CONFIG_MAPS, headers={"Accept": accept})
    assert answered.body["kind"] == kind
    items = answered.body.get("items") or []
    assert all(("data" in item) is (kind == "ConfigMapList") for item in items)


async def test_the_rows_of_a_table_include_the_part_of_the_object_that_is_requested(api: Caller) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    for include, kind in (("Metadata", "PartialObjectMetadata"), ("Object", "ConfigMap")):
        answered = await api.call("GET", CONFIG_MAPS, headers=table, includeObject=include)
        assert answered.body["rows"][0]["object"]["kind"] == kind
    assert (await api.call("GET", CONFIG_MAPS, headers=table, includeObject="All")).code == 400


async def test_an_unsupported_form_is_refused(api: Caller) -> None:
    answered = await api.call("GET", CONFIG_MAPS, headers={"Accept": "text/html"})
    assert (answered.code, answered.body["reason"]) == (406, "NotAcceptable")


async def test_an_oversized_body_is_refused(api: Caller) -> None:
    async with api.session.post(CONFIG_MAPS, data=io.BytesIO(b" " * (3 * 2**20 + 1))) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_body_in_protobuf_is_refused_with_an_alternative(api: Caller) -> None:
    protobuf = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    answered = await api.call("POST", CONFIG_MAPS, b"k8s\x00", headers=protobuf)
    assert (answered.code, answered.body["reason"]) == (415, "UnsupportedMediaType")
    assert "--dry-run=client -o yaml" in answered.body["message"]

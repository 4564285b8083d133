"""The operator's connection to the API server: proxies and tokens."""

import asyncio
import json
from typing import Self

import pytest
from fake_api import FakeApi
from kubernetes_asyncio.client import Configuration

from dracpu_api.errors import UnavailableError
from dracpu_api.resources import CPU_NODES
from dracpu_operator.api.cluster import Cluster

ELSEWHERE = "http://api.invalid"
CPU_NODE = {"kind": CPU_NODES.kind, "metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"}}


class Proxy:
    """An HTTP proxy that answers every request itself; `asked` has the first line of each."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split(b"\r\n")[0].decode())
        body = json.dumps(CPU_NODE).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()


async def test_requests_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Proxy() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with Cluster(Configuration(host=ELSEWHERE)) as cluster:
            await cluster.read(CPU_NODES, "n1")
        assert proxy.asked == [f"GET {ELSEWHERE}/apis/dra.cpu/v1alpha1/cpunodes/n1 HTTP/1.1"]


async def test_no_proxy_excludes_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Proxy() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "example.com,.invalid")
        async with Cluster(Configuration(host=ELSEWHERE)) as cluster:
            with pytest.raises(UnavailableError, match="GET /apis/dra.cpu/v1alpha1/cpunodes/n1"):
                await cluster.read(CPU_NODES, "n1")
        assert not proxy.asked


async def test_a_proxy_of_the_kubeconfig_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Proxy() as proxy:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        configuration = Configuration(host=ELSEWHERE)
        configuration.proxy = proxy.url
        async with Cluster(configuration) as cluster:
            await cluster.read(CPU_NODES, "n1")
        assert proxy.asked


async def test_every_request_has_the_present_token() -> None:
    tokens = iter(["first", "second"])

    async def refresh(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {next(tokens)}"

    async with FakeApi() as api:
        api.add("cpunodes", {"metadata": {"name": "n1"}})
        configuration = Configuration(host=f"{api.url}/")
        configuration.refresh_api_key_hook = refresh
        async with Cluster(configuration) as cluster:
            for _ in range(2):
                await cluster.read(CPU_NODES, "n1")
        assert [request.headers["Authorization"] for request in api.requests] == ["Bearer first", "Bearer second"]
        assert api.requests[0].headers["User-Agent"] == "dracpu-operator"

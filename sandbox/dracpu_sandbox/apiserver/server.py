"""The API server over HTTP.

    async with ApiServer() as server:
        ...  # kubectl --server {server.url} get nodes

It serves on loopback only, without authentication, as `kubectl proxy` does. It refuses requests from web pages.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web
from multidict import CIMultiDict

from dracpu_sandbox.apiserver.garbage import GarbageCollector
from dracpu_sandbox.apiserver.handling import Answer, Handler
from dracpu_sandbox.apiserver.kinds.admission import admit
from dracpu_sandbox.apiserver.kinds.discovery import discover
from dracpu_sandbox.apiserver.kinds.openapi import OPENAPI_V2, OPENAPI_V2_PATH, OPENAPI_V2_TYPE, openapi
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.objects import Admit, Objects, Writing
from dracpu_sandbox.apiserver.refusal import RefusedError, bad_request, nothing_here
from dracpu_sandbox.apiserver.rendering import encoded
from dracpu_sandbox.apiserver.request import Request, read_body, read_request
from dracpu_sandbox.apiserver.store import Store
from dracpu_sandbox.apiserver.streams import Logs, stream_logs, stream_watch
from dracpu_sandbox.apiserver.watches import Watches
from dracpu_sandbox.errors import SandboxError

JsonObject = dict[str, Any]
Proceed = Callable[[], Awaitable[web.StreamResponse]]
Around = Callable[[Request, Proceed], Awaitable[web.StreamResponse]]

_LOOPBACK: Final = {"127.0.0.1", "localhost", "::1"}
_HEALTH: Final = {"/healthz", "/livez", "/readyz"}
_FIRST_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_LONGEST_BODY: Final = 3 * 2**20  # as kube-apiserver
_JSON: Final = "application/json"


class PortTakenError(SandboxError):
    """The requested port is not available."""


class CutOffError(Exception):
    """Ends the connection without an answer when a function in `around` raises it."""


class ApiServer:
    """Serves while the block is open. Code in the same loop may use `objects` and `watches`."""

    def __init__(
        self,
        port: int = 0,
        crds: Sequence[JsonObject] = (),
        *,
        tls: ssl.SSLContext | None = None,
        admit: Admit = admit,
        collects_garbage: bool = True,
    ) -> None:
        store = Store()
        self.url = ""
        self.objects = Objects(store, Registry(), admit=admit)
        self.watches = Watches(store)
        self.logs: Logs | None = None  # reads the log of a pod's container
        self.around: Around | None = None  # is called around each request for objects, to inject faults
        self.undiscovered: set[str] = set()  # groups that discovery leaves out, as an API server that lags behind
        self._port = port
        self._tls = tls
        self._handler = Handler(self.objects)
        self._collects_garbage = collects_garbage
        self._collector: asyncio.Task[None] | None = None
        self._runner: web.ServerRunner | None = None
        for name in _FIRST_NAMESPACES:
            self._create("", "v1", "namespaces", {"metadata": {"name": name}})
        for crd in crds:
            self._create("apiextensions.k8s.io", "v1", "customresourcedefinitions", crd)

    async def __aenter__(self) -> Self:
        server = web.Server(self._serve, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise PortTakenError(f"cannot serve on port {self._port}: {error.strerror}; choose another port") from error
        self._port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"
        if self._collects_garbage:
            self._collector = asyncio.create_task(GarbageCollector(self.objects).run(), name="garbage collector")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.watches.release()
        self.watches.end()
        assert self._runner is not None
        await self._runner.cleanup()
        if self._collector is not None:
            self._collector.cancel()
            await asyncio.wait([self._collector])
            if not self._collector.cancelled():
                self._collector.result()

    def kubeconfig(self) -> JsonObject:
        """Returns the content of a kubeconfig file."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url}}],
            "users": [{"name": "sandbox", "user": {}}],
        }

    def _create(self, group: str, version: str, plural: str, body: JsonObject) -> None:
        kind = self.objects.registry.find(group, version, plural)
        assert kind is not None
        self.objects.create(kind, "", body, Writing(manager="dracpu-sandbox"))

    # HTTP

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        try:
            _refuse_browsers(http)
            if (described := self._description(http)) is not None:
                return described
            return await self._surrounded(http, await self._read(http))
        except RefusedError as refused:
            return _refusal(refused)
        except CutOffError:
            if http.transport is not None:
                http.transport.abort()
            return web.Response()

    def _description(self, http: web.BaseRequest) -> web.Response | None:
        """Answers requests for the server's health and its description; returns None for other requests."""
        if http.path in _HEALTH:
            return web.Response(text="ok")
        if (discovered := discover(self.objects.registry, http.path, self.undiscovered)) is not None:
            return web.Response(body=encoded(discovered), content_type=_JSON)
        if (described := openapi(self.objects.registry, http.path)) is not None:
            return web.Response(body=encoded(described), content_type=_JSON)
        if http.path == OPENAPI_V2_PATH:
            return web.Response(body=OPENAPI_V2, content_type=OPENAPI_V2_TYPE)
        return None

    async def _read(self, http: web.BaseRequest) -> Request:
        payload = await http.content.read()
        if len(payload) > _LONGEST_BODY:
            raise RefusedError(413, "RequestEntityTooLarge", f"the body must have at most {_LONGEST_BODY} bytes")
        request = read_request(http.method, http.path, dict(http.query), http.headers)
        if request is None:
            raise nothing_here()
        return replace(request, body=read_body(payload, http.headers.get("Content-Type", "")))

    async def _surrounded(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        async def proceed() -> web.StreamResponse:
            return await self._answer(http, request)

        return await (proceed() if self.around is None else self.around(request, proceed))

    async def _answer(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        kind = self._handler.kind_of(request)
        if request.watches:
            return await stream_watch(http, request, kind, self.watches)
        if request.subresource == "log":
            if self.logs is None:
                raise bad_request("no node serves logs")
            return await stream_logs(http, request, kind, self.objects, self.logs)
        return _response(self._handler.answer(request, kind))


def _refuse_browsers(http: web.BaseRequest) -> None:
    """Refuses requests from web pages, which have an Origin, or a Host other than loopback."""
    host = http.headers.get("Host", "")
    name = host[: host.rindex("]")].lstrip("[") if "]" in host else host.partition(":")[0]
    if name not in _LOOPBACK or "Origin" in http.headers:
        raise RefusedError(403, "Forbidden", "web pages are refused: send a Host of this machine, and no Origin")


def _response(answer: Answer) -> web.Response:
    headers: CIMultiDict[str] = CIMultiDict({"Content-Type": _JSON})
    for warning in answer.warnings:
        escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
        headers.add("Warning", f'299 - "{escaped}"')
    return web.Response(body=answer.body, status=answer.code, headers=headers)


def _refusal(refused: RefusedError) -> web.Response:
    headers: Mapping[str, str] = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
    return web.Response(body=encoded(refused.status), status=refused.code, headers=headers, content_type=_JSON)

"""/healthz, /readyz and /metrics, for the kubelet's probes and for Prometheus."""

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from aiohttp import web

from dracpu_api.listening import cannot_listen, parse_address
from dracpu_operator.metrics import CONTENT_TYPE, Metrics

Page = Callable[[web.Request], Awaitable[web.Response]]
Reasons = Callable[[], Sequence[str]]  # why a probe fails; it succeeds when there are none


class HttpServer:
    """Serves the three paths, as an async context manager."""

    def __init__(self, address: str, *, live: Reasons, ready: Reasons, metrics: Metrics) -> None:
        self._host, self._port = parse_address(address)
        self._address = address
        application = web.Application()
        application.router.add_get("/healthz", _probe_page(live))
        application.router.add_get("/readyz", _probe_page(ready))
        application.router.add_get("/metrics", _metrics_page(metrics))
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, keepalive_timeout=1.0)

    @property
    def port(self) -> int:
        """The port on which it listens; with port 0 in the address, the system has chosen it."""
        port: int = self._runner.addresses[0][1]
        return port

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise cannot_listen(self._address, error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()


def _probe_page(reasons: Reasons) -> Page:
    async def page(_: web.Request) -> web.Response:
        found = reasons()
        return web.Response(text="".join(f"{line}\n" for line in found or ["ok"]), status=503 if found else 200)

    return page


def _metrics_page(metrics: Metrics) -> Page:
    async def page(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    return page

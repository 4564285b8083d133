"""The real operator in a thread of its own: kopf takes a whole event loop for itself."""

import asyncio
import base64
import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from dracpu_operator.app import run
from dracpu_operator.options import RunOptions
from dracpu_operator.pace import Pace

QUICK: Final = Pace(
    debounce=0.01,
    first_recheck=60.0,
    recheck=60.0,
    claims_first=0.05,
    claims_cap=0.1,
    status=0.05,
    status_urgent=0.02,
    retry_first=0.02,
    retry_cap=0.05,
    writers=4,
)
# claims are listed for a change alone, and not again while nodes change: only then it gets quiet
NEVER_LISTING: Final = replace(QUICK, claims_first=3600.0, claims_cap=3600.0)


class RunningOperator:
    """Runs while the block is open; what it ends with is raised at the end of the block."""

    def __init__(self, server: str, folder: Path, pace: Pace = QUICK, *, authority: str = "") -> None:
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(yaml.safe_dump(kubeconfig(server, authority)))
        self._pace = pace
        self._thread = threading.Thread(target=self._serve, name="operator")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._error: Exception | None = None
        self._started = threading.Event()

    async def __aenter__(self) -> Self:
        self._thread.start()
        await asyncio.to_thread(self._started.wait)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)
        if self._error is not None:
            raise self._error

    async def ended(self) -> None:
        """Waits until it has ended by itself."""
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:  # noqa: BLE001 - raised again where the test waits
            self._error = error

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await run(RunOptions(self._kubeconfig, "127.0.0.1:0"), stop=self._stop, pace=self._pace)


def kubeconfig(server: str, authority: str = "") -> dict[str, object]:
    """A kubeconfig file's content for a server; one with TLS has an authority, as PEM."""
    trust = {"certificate-authority-data": base64.b64encode(authority.encode()).decode()} if authority else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server, **trust}}],
        "users": [{"name": "test", "user": {"token": "secret"}}],
    }

"""The real operator in a thread of its own: kopf cancels every task of its loop that is younger than itself."""

import asyncio
import contextlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dracpu_agent.cluster.access import from_kubeconfig
from dracpu_operator.app import run
from dracpu_operator.intervals import Intervals
from dracpu_operator.options import RunOptions
from dracpu_sandbox.logs import WRITER

# a person watches, and there is nobody to spare: what takes seconds on a large cluster is done at once
QUICK: Final = Intervals(
    debounce=0.02,
    claims_first=0.2,
    claims_cap=1.0,
    status=0.2,
    status_urgent=0.1,
    node_is_fresh=0.5,
    trouble=5.0,
    silence=30.0,
    retry_first=0.05,
    retry_cap=1.0,
)

# aiohttp: a session does not wait for the TLS connections that were closed before it, which kopf's watches are
_TLS_GOODBYE_SECONDS: Final = 0.25


class OperatorThread:
    """Serves while the block is open."""

    def __init__(self, kubeconfig: Path, intervals: Intervals = QUICK) -> None:
        self._options = RunOptions(kubeconfig, "127.0.0.1:0")
        self._intervals = intervals
        self._home: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the operator's own
        self._stop: asyncio.Event | None = None
        self._started = asyncio.Event()
        self._ended = asyncio.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="operator", daemon=True)

    async def __aenter__(self) -> Self:
        self._home = asyncio.get_running_loop()
        self._thread.start()
        await self._started.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        await self._ended.wait()
        self._thread.join()  # it has nothing left to do

    async def ended(self) -> None:
        """Waits until it has ended, and raises what it ended with."""
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    def _serve(self) -> None:
        assert self._home is not None
        WRITER.set("operator")
        try:
            asyncio.run(self._main())
        except Exception as error:  # noqa: BLE001 - raised again where somebody waits
            self._error = error
        finally:
            self._home.call_soon_threadsafe(self._ended.set)

    async def _main(self) -> None:
        assert self._home is not None
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._home.call_soon_threadsafe(self._started.set)
        await run(self._options, stop=self._stop, intervals=self._intervals)
        assert self._options.kubeconfig is not None
        if from_kubeconfig(self._options.kubeconfig).tls is not None:
            await asyncio.sleep(_TLS_GOODBYE_SECONDS)

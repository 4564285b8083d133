"""Runs the real operator in a separate thread, because kopf cancels every task of its loop that is newer than it."""

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dracpu_agent.cluster.access import from_kubeconfig
from dracpu_operator.app import run
from dracpu_operator.intervals import Intervals
from dracpu_operator.options import RunOptions
from dracpu_sandbox.logs import WRITER

# short delays: a user is watching, and there is no large cluster whose API server must be protected
QUICK: Final = Intervals(
    debounce=0.02,
    status=0.2,
    status_urgent=0.1,
    node_is_fresh=0.5,
    trouble=5.0,
    silence=30.0,
    retry_first=0.05,
    retry_cap=1.0,
)

# aiohttp: closing a session does not wait until the TLS connections of kopf's watches are closed
_TLS_CLOSE_SECONDS: Final = 0.25


async def operate(kubeconfig: Path, intervals: Intervals = QUICK, namespace: str = "") -> None:
    """Runs the operator until it is cancelled, then waits for its end. Raises the error if the operator fails.
    `namespace` is that of the agents' pods, which it else does not follow."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    def serve() -> None:
        WRITER.set("operator")
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_serve(RunOptions(kubeconfig, "127.0.0.1:0", namespace=namespace), stop, intervals))

    with ThreadPoolExecutor(1, "operator") as executor:
        serving = asyncio.get_running_loop().run_in_executor(executor, serve)
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):  # its loop is closed, because it has ended by itself
                loop.call_soon_threadsafe(stop.set)
            await serving
            raise


async def _serve(options: RunOptions, stop: asyncio.Event, intervals: Intervals) -> None:
    await run(options, stop=stop, intervals=intervals)
    assert options.kubeconfig is not None
    if from_kubeconfig(options.kubeconfig).tls is not None:
        await asyncio.sleep(_TLS_CLOSE_SECONDS)

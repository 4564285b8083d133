"""Ends a process that hangs, so that the kubelet restarts its container.

A liveness probe would need a port, and any client that reaches a port can keep the kubelet out. A watchdog inside the
process needs none. It is a thread of the interpreter that runs without Python code: it also ends a process in which no
Python code runs any more, and prints first where each thread is.
"""

import asyncio
import faulthandler
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import structlog

HANG_SECONDS: Final = 60.0
BEAT_SECONDS: Final = 10.0
STDERR: Final = 2  # as a file descriptor: faulthandler writes without Python

log = structlog.get_logger("watchdog")


async def watch_process(
    live: Callable[[], Sequence[str]] = tuple,
    *,
    hang_seconds: float = HANG_SECONDS,
    beat_seconds: float = BEAT_SECONDS,
) -> NoReturn:
    """Ends the process when the event loop has stood still, or `live` has had reasons to restart, for `hang_seconds`.

    Runs until cancelled.
    """
    reported: Sequence[str] = ()
    faulthandler.dump_traceback_later(hang_seconds, exit=True, file=STDERR)
    try:
        while True:
            reasons = live()
            if reasons and reasons != reported:
                log.error("the process ends soon, unless it recovers", reasons=list(reasons))
            reported = reasons
            await asyncio.sleep(beat_seconds)
            if not reasons:
                faulthandler.dump_traceback_later(hang_seconds, exit=True, file=STDERR)  # starts the timer anew
    finally:
        faulthandler.cancel_dump_traceback_later()

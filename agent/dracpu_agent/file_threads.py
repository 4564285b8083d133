"""Threads for work on files, so that no other blocking work delays it.

asyncio resolves host names in its default threads. While DNS does not answer, look-ups fill them for many seconds, and
a checkpoint or a CDI file that is written in a default thread would wait for DNS.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

THREADS: Final = 8  # claims of one call are written at the same time; a hanging read of one file delays no other file

_P = ParamSpec("_P")
_T = TypeVar("_T")

_threads: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="files")


async def in_file_thread(work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Runs blocking work on files in a thread and returns its result.

    When the caller is cancelled, work that has not begun never begins, and work that has begun ends before this call
    does: whatever the caller does next on the same files cannot run at the same time.
    """
    begun = _threads.submit(work, *args, **kwargs)
    ended = asyncio.wrap_future(begun)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        if not begun.cancel():
            await asyncio.wait((ended,))
            ended.exception()  # so that asyncio does not report it: the caller is not interested any more
        raise

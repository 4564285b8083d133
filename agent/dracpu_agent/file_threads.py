"""Threads for work on files, so that no other blocking work delays it.

asyncio resolves host names in its default threads. While DNS does not answer, look-ups fill them for many seconds, and
a checkpoint or a CDI file that is written in a default thread would wait for DNS.

Reads of pods' and containers' cgroups for the driver of memory have threads of their own again: a cgroup that hangs
occupies its thread for as long as it hangs, and checkpoints and CDI files must be written meanwhile. The limits of
hugepages are written in the threads for files, but never in all of them (`work/page_limits.py`), so that cgroups that
hang in other reads do not delay the limits of pods either.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

THREADS: Final = 8  # claims of one call are written at the same time; a hanging read of one file delays no other file
CGROUP_THREADS: Final = 3  # these reads take milliseconds, and few are made at the same time

_P = ParamSpec("_P")
_T = TypeVar("_T")

# a pool starts its threads when there is work for them: agents of CPUs alone have none for cgroups
_threads: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="files")
_cgroup_threads: Final = ThreadPoolExecutor(CGROUP_THREADS, thread_name_prefix="cgroups")


async def in_file_thread(work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Runs blocking work on files in a thread and returns its result.

    When the caller is cancelled, work that has not begun never begins, and work that has begun ends before this call
    does: whatever the caller does next on the same files cannot run at the same time.
    """
    return await _result(_threads.submit(work, *args, **kwargs))


async def in_cgroup_thread(work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Does the same for reads of pods' and containers' cgroups for the driver of memory, in the threads for these."""
    return await _result(_cgroup_threads.submit(work, *args, **kwargs))


async def _result(begun: Future[_T]) -> _T:
    ended = asyncio.wrap_future(begun)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        if not begun.cancel():
            await asyncio.wait((ended,))
            ended.exception()  # so that asyncio does not report it: the caller is not interested any more
        raise

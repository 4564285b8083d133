"""Reports which files were modified, with the kernel's inotify.

The kernel reports every write to a file of a cgroup, also one that changes nothing. Most kernels report neither that
such a file was removed nor that its cgroup was: the watches of a pod's files have to be removed when it has ended.
"""

import asyncio
import ctypes
import errno
import os
import resource
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dracpu_api.errors import DriverError

_IN_MODIFY: Final = 0x2
_IN_Q_OVERFLOW: Final = 0x4000
_IN_IGNORED: Final = 0x8000  # the kernel has removed the watch, with the file or with its file system
_EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_BUFFER: Final = 65536
_LIMITS: Final = Path("/proc/sys/fs/inotify")

_libc: Final = ctypes.CDLL(None, use_errno=True)


class WatchError(DriverError):
    """A file cannot be watched."""


class WatchLimitError(WatchError):
    """The node or the agent's container allows no more watches or instances of inotify."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The files that have changed since the last look."""

    modified: frozenset[Path]
    ended: frozenset[Path]  # the file was removed, or its file system unmounted; it is not watched any more
    overflow: bool  # the kernel dropped events: every file may have been modified or removed


class FileWatch:
    """Watches files, from the thread of the running event loop. Iterating over it waits for changes and yields all that
    came together; one task at a time may iterate. A `with` closes it, which ends the iteration."""

    def __init__(self) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _failure(ctypes.get_errno(), "no file can be watched")
        self._watches: dict[Path, int] = {}
        self._paths: dict[int, set[Path]] = {}  # of each watch: the kernel has one for each file, not for each path
        self._modified: set[Path] = set()
        self._ended: set[Path] = set()
        self._overflow = False
        self._closed = False
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all watches, and the iteration. May be called again."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1  # so that nothing is done to a file that gets the same number
            self._wake.set()

    def add(self, path: Path) -> bool:
        """Watches the file that has this path now; False if there is none.

        A path that is watched already may be added again: if it has another file meanwhile, that file is watched, and
        the former one is not. After an overflow this finds the files that were replaced.
        """
        watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MODIFY)
        if watch < 0:
            code = ctypes.get_errno()
            if code not in {errno.ENOENT, errno.ENOTDIR, errno.ENODEV}:
                raise _failure(code, f"{path} cannot be watched")
            self.remove(path)
            return False
        if self._watches.get(path) != watch:
            self.remove(path)
            self._watches[path] = watch
            self._paths.setdefault(watch, set()).add(path)
        return True

    def remove(self, path: Path) -> None:
        """Stops watching the file, of which nothing more is reported; does nothing for a path that is not watched."""
        self._modified.discard(path)
        self._ended.discard(path)
        watch = self._watches.pop(path, None)
        if watch is None:
            return
        self._paths[watch].discard(path)
        if not self._paths[watch]:
            del self._paths[watch]
            # fails if the kernel has removed the watch itself; its event comes later, and is of no watch then
            _libc.inotify_rm_watch(self._descriptor, watch)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Changes:
        """All changes since the last call; waits for the first."""
        while not self._closed and not (self._modified or self._ended or self._overflow):
            self._wake.clear()
            await self._wake.wait()
        if self._closed:
            raise StopAsyncIteration
        changes = Changes(frozenset(self._modified), frozenset(self._ended), self._overflow)
        self._modified.clear()
        self._ended.clear()
        self._overflow = False
        return changes

    def _read(self) -> None:
        """Takes one buffer of events; the event loop calls again while there are more."""
        try:
            events = os.read(self._descriptor, _BUFFER)
        except BlockingIOError:
            return
        for watch, mask in _events(events):
            if mask & _IN_Q_OVERFLOW:
                self._overflow = True
            elif mask & _IN_IGNORED:
                self._end(watch)
            else:
                self._modified |= self._paths.get(watch, set())
        self._wake.set()

    def _end(self, watch: int) -> None:
        paths = self._paths.pop(watch, set())
        for path in paths:
            del self._watches[path]
        self._modified -= paths
        self._ended |= paths


WATCH_AGAIN_SECONDS: Final = 60.0  # the kernel does not notify of instances that become free


async def opened_watch(
    report: Callable[[WatchError], None],
    open_watch: Callable[[], FileWatch] = FileWatch,
    again: float = WATCH_AGAIN_SECONDS,
) -> FileWatch:
    """Opens a watch, and tries again every `again` seconds while the kernel refuses that; `report` is called each time.
    The node may have no instance left, which is no reason for the agent to end."""
    while True:
        try:
            return open_watch()
        except WatchError as error:
            report(error)
        await asyncio.sleep(again)


def _events(buffer: bytes) -> Iterator[tuple[int, int]]:
    """Watch and mask of each event."""
    offset = 0
    while offset < len(buffer):
        watch, mask, _, length = _EVENT.unpack_from(buffer, offset)
        offset += _EVENT.size + length
        yield watch, mask


def _failure(code: int, what: str) -> WatchError:
    """The error for a refusal of the kernel, with the limits as they are."""
    if code == errno.ENOSPC:
        return WatchLimitError(
            f"{what}: all watches of the user are in use: raise fs.inotify.max_user_watches, which is"
            f" {_limit('max_user_watches')}, on the node with sysctl"
        )
    if code == errno.EMFILE:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return WatchLimitError(
            f"{what}: {os.strerror(code)}: raise fs.inotify.max_user_instances, which is"
            f" {_limit('max_user_instances')}, on the node with sysctl, or the number of files that the agent may open,"
            f" which is {files}"
        )
    return WatchError(
        f"{what}: {os.strerror(code)}: check that the agent may read it, and that the node has free memory"
    )


def _limit(name: str) -> str:
    try:
        return (_LIMITS / name).read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"

"""Opens directories and files beneath a directory, in such a way that nothing leads out of it.

Every name is opened beneath the directory before it, links are not followed, and only directories and regular files of
the same file system are used. What was opened stays the same, whatever happens to its name.
"""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dracpu_agent.host.cgroup_errors import UnsafeCgroupError

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe would wait for another process, before the pipe can be recognized and refused
_BENEATH: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
# errors of opening a link, a pipe without a reader, a socket, a file as a directory, or a directory as a file
_ANOTHER_KIND: Final = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
_GONE: Final = (errno.ENOENT, errno.ENODEV)  # ENODEV: the cgroup was removed while its file was open
_CHUNK: Final = 65536


class Directory:
    """An open directory, which a `with` closes. None means that there is nothing of a name. The methods raise
    UnsafeCgroupError for what is no directory or file of the tree, and OSError for what the kernel refuses."""

    def __init__(self, path: Path, descriptor: int, device: int) -> None:
        self.path = path  # for messages; nothing is opened by it
        self._descriptor = descriptor
        self._device = device

    @classmethod
    def at(cls, path: Path) -> Self:
        """Opens the directory in which everything else must be. Links in its own path are followed, because the
        administrator chooses it."""
        descriptor = os.open(path, _DIRECTORY)
        return cls(path, descriptor, os.fstat(descriptor).st_dev)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def beneath(self, names: Sequence[str]) -> "Directory | None":
        """Opens the directory to which the names lead, each of them directly in the one before."""
        place = Directory(self.path, os.dup(self._descriptor), self._device)
        for name in names:
            with place:
                inner = place._inner(name)
            if inner is None:
                return None
            place = inner
        return place

    def names(self) -> Sequence[str]:
        """The names in it; none if the directory was removed."""
        return os.listdir(self._descriptor)  # noqa: PTH208 - Path.iterdir cannot list an open directory

    def read(self, name: str) -> str | None:
        """The text of a file, without the line break at its end."""
        file = self._open_file(name, os.O_RDONLY)
        if file is None:
            return None
        try:
            return b"".join(iter(lambda: os.read(file, _CHUNK), b"")).decode("ascii", "replace").rstrip("\n")
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise
        finally:
            os.close(file)

    def write(self, name: str, text: str) -> None:
        """Replaces the text of a file that exists. A file of a cgroup takes the whole text, or refuses it."""
        file = self._open_file(name, os.O_WRONLY)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path / name))
        try:
            line = f"{text}\n".encode("ascii")
            os.write(file, line)
            # A file of a cgroup has the size 0, and truncating it would be another event for all who watch it. A plain
            # file, in a tree that was made for tests, would keep the end of a text that was longer.
            if os.fstat(file).st_size > len(line):
                os.ftruncate(file, len(line))
        finally:
            os.close(file)

    def check_writable(self, name: str) -> None:
        """Opens a file for writing, and writes nothing; raises OSError if that is not allowed."""
        file = self._open_file(name, os.O_WRONLY)
        if file is not None:
            os.close(file)

    def _inner(self, name: str) -> "Directory | None":
        descriptor = self._open(name, _DIRECTORY, stat.S_IFDIR)
        return None if descriptor is None else Directory(self.path / name, descriptor, self._device)

    def _open_file(self, name: str, flags: int) -> int | None:
        return self._open(name, flags, stat.S_IFREG)

    def _open(self, name: str, flags: int, kind: int) -> int | None:
        if name in {"", ".", ".."} or "/" in name or "\0" in name:
            raise UnsafeCgroupError(f'"{name}" cannot be the name of a file in {self.path}: nothing was opened')
        try:
            descriptor = os.open(name, flags | _BENEATH, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in _GONE:
                return None
            if error.errno in _ANOTHER_KIND:
                raise self._unsafe(name) from error
            raise
        if not self._belongs(descriptor, kind):
            os.close(descriptor)
            raise self._unsafe(name)
        return descriptor

    def _belongs(self, descriptor: int, kind: int) -> bool:
        """Whether it is of this kind and in this tree. A file with two names may be one of another directory, too."""
        found = os.fstat(descriptor)
        several = kind == stat.S_IFREG and found.st_nlink > 1
        return stat.S_IFMT(found.st_mode) == kind and found.st_dev == self._device and not several

    def _unsafe(self, name: str) -> UnsafeCgroupError:
        return UnsafeCgroupError(
            f"{self.path / name} is not a part of the cgroup tree: it is a link, another kind of file, or on another"
            " file system, and the agent does not use it; find the program that put it there, and remove it"
        )

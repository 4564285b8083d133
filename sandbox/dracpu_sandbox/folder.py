"""The folder of a running sandbox: private, short enough for unix sockets, gone when the sandbox ends.

What a killed sandbox left behind is recognised by its lock, which dies with the process, and cleared by the next one.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dracpu_sandbox.errors import SandboxError

PREFIX: Final = "dracpu-sandbox-"
KUBECONFIG: Final = "kubeconfig"

_LOCK: Final = "lock"
_OFFERED: Final = "offered"
_MAKING_SECONDS: Final = 60.0  # a folder so young may be without its lock yet
_LONGEST: Final = 24  # bytes: a unix socket's path has 107, and those of nodes and kubelets need the rest


@contextlib.contextmanager
def folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder, held until the block ends."""
    parent = parent or default_parent()
    _clear(parent)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # mode 0700
    try:
        with (path / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield path
    finally:
        shutil.rmtree(path)


def offer(path: Path) -> None:
    """Marks a sandbox that a person has started to play with: `top` finds only those, and none of stories and tests."""
    (path / _OFFERED).touch()


def running_kubeconfig(parent: Path | None = None) -> Path | None:
    """The kubeconfig of the sandbox that was offered last among those that run."""
    offered = [path for path in _mine(parent or default_parent()) if (path / _OFFERED).exists() and _held(path)]
    return max(offered, key=lambda path: (path / _OFFERED).stat().st_mtime) / KUBECONFIG if offered else None


def default_parent() -> Path:
    """The directory for temporary files, where its path leaves room for sockets."""
    chosen = Path(tempfile.gettempdir())
    return chosen if len(bytes(chosen)) <= _LONGEST else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it


def _clear(parent: Path) -> None:
    for path in _mine(parent):
        being_made = time.time() - path.stat().st_mtime < _MAKING_SECONDS
        if not being_made and not _held(path):
            shutil.rmtree(path, ignore_errors=True)  # another sandbox that starts may do the same


def _mine(parent: Path) -> Iterator[Path]:
    """The folders of this user's sandboxes; other users may have made something with that prefix."""
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid == os.getuid() and path.is_dir() and not path.is_symlink():
                yield path


def _held(path: Path) -> bool:
    """Whether a process that uses this folder is running."""
    try:
        with (path / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        raise SandboxError(f"{path} cannot be read: {error}") from error
    return False

"""The folder of a running sandbox: private, with a path short enough for unix sockets, deleted on exit.

A killed sandbox leaves its folder behind. The next sandbox deletes it, because the lock file is no longer locked.
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
_MAKING_SECONDS: Final = 60.0  # a folder younger than this may not have its lock yet
_LONGEST: Final = 24  # bytes: a unix socket's path has at most 107, and nodes and kubelets need the rest


@contextlib.contextmanager
def folder(parent: Path | None = None) -> Iterator[Path]:
    """Makes a new folder and keeps it locked until the block ends."""
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
    """Marks a sandbox that a user has started: `top` finds only these, not the sandboxes of stories and tests."""
    (path / _OFFERED).touch()


def running_kubeconfig(parent: Path | None = None) -> Path | None:
    """Returns the kubeconfig of the running sandbox that was offered last."""
    offered = [path for path in _mine(parent or default_parent()) if (path / _OFFERED).exists() and _held(path)]
    return max(offered, key=lambda path: (path / _OFFERED).stat().st_mtime) / KUBECONFIG if offered else None


def default_parent() -> Path:
    """Returns the directory for temporary files if its path leaves room for sockets, and /tmp otherwise."""
    chosen = Path(tempfile.gettempdir())
    return chosen if len(bytes(chosen)) <= _LONGEST else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it


def _clear(parent: Path) -> None:
    for path in _mine(parent):
        being_made = time.time() - path.stat().st_mtime < _MAKING_SECONDS
        if not being_made and not _held(path):
            shutil.rmtree(path, ignore_errors=True)  # another starting sandbox may delete it, too


def _mine(parent: Path) -> Iterator[Path]:
    """Yields the folders of this user's sandboxes; other users' folders may have the same prefix."""
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid == os.getuid() and path.is_dir() and not path.is_symlink():
                yield path


def _held(path: Path) -> bool:
    """Whether a process is using this folder."""
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

"""Reads small files and directories of sysfs, procfs and the cgroup tree. What cannot be read counts as absent."""

import os
from collections.abc import Callable, Iterable
from typing import Final

PAGE: Final = 4096  # sysfs and procfs return at most one page per read


def numbered(names: Iterable[str], prefix: str) -> list[int]:
    """The numbers n of the names `<prefix>n`, ascending."""
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(number) for number in numbers if number.isdecimal())


def names_in(directory: str) -> frozenset[str]:
    """The names in a directory; none if it is absent."""
    try:
        return frozenset(os.listdir(directory))  # noqa: PTH208 - Path.iterdir makes an object of each name
    except OSError:
        return frozenset()


def read_text(path: str, pages: int = 64) -> str | None:
    """The file's text, or None if it cannot be read. Uses system calls, because `open` takes three times as long."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(file, PAGE)
        if len(text) == PAGE:
            text += _rest(lambda: os.read(file, PAGE), pages - 1)
    except OSError:
        return None  # ENODEV, EINVAL: the files of a CPU disappear when it goes offline
    finally:
        os.close(file)
    return text.decode("ascii", "replace").rstrip("\0\n")


def _rest(read_page: Callable[[], bytes], pages: int) -> bytes:
    parts: list[bytes] = []
    for _ in range(pages):
        parts.append(read_page())
        if not parts[-1]:
            break
    return b"".join(parts)

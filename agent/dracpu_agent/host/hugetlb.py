"""The files of a cgroup that count and limit its hugepages, and the order in which limits are written.

For each size of pages, hugetlb.<size>.max limits what processes touch, and hugetlb.<size>.rsvd.max (Linux >= 5.7) what
they reserve with mmap. A process that could reserve more than it may touch is killed by SIGBUS when it touches it.
"""

import errno
import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, Protocol

from dracpu_agent.host.cgroup_errors import BusyLimitError, CgroupError
from dracpu_agent.memory.kinds import Kind

UNLIMITED: Final = 2**63 - 1  # bytes: the number that stands for "max", larger than every limit that the kernel keeps
CONTROLLER: Final = "hugetlb"
_MAX: Final = "max"
_FILE: Final = re.compile(r"hugetlb\.(?P<number>[1-9][0-9]{0,3})(?P<unit>[KMG])B\.max")
_UNITS: Final[Mapping[str, int]] = {"G": 2**30, "M": 2**20, "K": 2**10}  # the kernel uses the largest that fits


class ControlFiles(Protocol):
    """The files of one cgroup. Both methods raise OSError for what the kernel refuses."""

    def read(self, name: str) -> str | None:
        """The text of a file; None if there is no such file."""
        ...

    def write(self, name: str, text: str) -> None:
        """Replaces the text of a file."""
        ...


def limit_file(page: int) -> str:
    """The name of the file that limits the use of pages of this size."""
    return limit_files(page)[0]


def limit_files(page: int) -> tuple[str, str]:
    """The names of the files that limit use and reservation of pages of this size."""
    return Kind(page).limit_files


def size_text(page: int) -> str:
    """The size of a page as the names of the files have it: 2097152 is "2MB"."""
    return Kind(page).cgroup_name


def sizes_text(pages: Iterable[int]) -> str:
    """The sizes of pages, ascending, for messages."""
    return ", ".join(map(size_text, sorted(pages)))


def pages_limited(names: Iterable[str]) -> list[int]:
    """The sizes in bytes, ascending, of the pages that a cgroup with these files limits."""
    matches = filter(None, map(_FILE.fullmatch, names))
    return sorted(int(match["number"]) * _UNITS[match["unit"]] for match in matches)


def bytes_in(text: str, source: str) -> int:
    """The number in a file, UNLIMITED for "max"; raises CgroupError for another text."""
    stripped = text.strip()
    if stripped == _MAX:
        return UNLIMITED
    if not stripped.isdecimal():
        raise CgroupError(
            f'{source} contains "{stripped[:80]}", which is no number of bytes: check what is mounted there'
        )
    return int(stripped)


def limit_in(text: str, page: int, source: str) -> int:
    """The limit in a file for pages of this size; raises CgroupError for another text.

    Current kernels show the limit of a new cgroup as the largest number of small pages, instead of "max".
    """
    limit = bytes_in(text, source)
    return UNLIMITED if _is_unlimited(limit, page) else limit


def limit_text(limit: int, page: int) -> str:
    """A limit as the kernel shows it after it was written: in whole pages, or "max"."""
    return _MAX if _is_unlimited(limit, page) else str(limit // page * page)


def _is_unlimited(limit: int, page: int) -> bool:
    return limit // page >= UNLIMITED // page


def write_limits(files: ControlFiles, limits: Mapping[int, int], cgroup: str) -> bool:
    """Writes the limits (size of a page -> bytes) to the files that show something else; returns whether any did.

    Raises BusyLimitError, after the limits of all other sizes were written, if more is in use than a limit allows, and
    OSError for every other refusal.
    """
    results = {page: _write(files, page, limit) for page, limit in sorted(limits.items())}
    busy = frozenset(page for page, result in results.items() if result is _Result.BUSY)
    if busy:
        raise BusyLimitError(
            f"{cgroup}: its processes use or have reserved more hugepages of {sizes_text(busy)} than the lower limit"
            " allows: try again when they have freed pages, or delete the pod",
            busy,
        )
    return _Result.WRITTEN in results.values()


class _Result(Enum):
    UNCHANGED = auto()
    WRITTEN = auto()
    BUSY = auto()


def _write(files: ControlFiles, page: int, limit: int) -> _Result:
    used, reserved = limit_files(page)
    present = files.read(used)
    if present is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), used)
    wanted = limit_text(limit, page)
    lowered = limit_in(wanted, page, used) < limit_in(present, page, used)
    result = _Result.UNCHANGED
    try:
        # What processes can reserve never exceeds what they can touch, not for a moment; and where the lower
        # limit of reservations is refused, reserved pages stay usable.
        for name in (reserved, used) if lowered else (used, reserved):
            shown = files.read(name)
            if shown is not None and limit_text(limit_in(shown, page, name), page) != wanted:
                files.write(name, wanted)
                result = _Result.WRITTEN
    except OSError as error:
        if error.errno == errno.EBUSY:
            return _Result.BUSY
        raise
    return result

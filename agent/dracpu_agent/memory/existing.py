"""The limits of containers that exist already: what they can be sent, what is missing, and what is in force.

Agents of CPUs alone load this module and no other of this room.
"""

from collections.abc import Mapping
from typing import Final

from dracpu_api.cpuset import CpuSet, CpuSetError

MEMORY_MAX: Final = "memory.max"
MEMS: Final = "cpuset.mems"
CORRECTABLE: Final = (MEMORY_MAX, MEMS)  # files that can be put right while the container runs
_HUGETLB: Final = "hugetlb."
_LARGEST_PAGE: Final = 65536  # of ordinary memory; the kernel rounds memory.max down to whole pages


def permitted(wanted: Mapping[str, str], recorded: Mapping[str, str], *, started: bool) -> dict[str, str]:
    """Those of the wanted limits that a container that exists can be sent without harm. `recorded` are the limits that
    it has by the runtime's record; `started`: its program runs.

    - Limits of hugepages stay as they were when it was created. Where the runtime limits hugepages by itself, it writes
      the limits of the creation before ours with each update; once more pages than those are in use, every later update
      of the container would fail.
    - A limit of memory only grows: a lower one would kill a program that uses more.
    - A binding stays as it is: another one would stop the runtime until the pages have moved.

    What is missing then, `late` returns.
    """
    pages = {file: recorded[file] for file in wanted if file.startswith(_HUGETLB) and file in recorded}
    if not started:
        return pages | {file: content for file, content in wanted.items() if file in CORRECTABLE}
    if MEMORY_MAX not in wanted or MEMORY_MAX not in recorded:
        return pages  # without a limit, it is not bound either
    limits = {MEMORY_MAX: _higher(wanted[MEMORY_MAX], recorded[MEMORY_MAX])}
    if MEMS in recorded:
        limits[MEMS] = wanted[MEMS] if _holds(MEMS, wanted.get(MEMS, ""), recorded[MEMS]) else recorded[MEMS]
    return pages | limits


def late(wanted: Mapping[str, str], allowed: Mapping[str, str]) -> dict[str, str]:
    """The wanted limits of a running container that it can only be given step by step: `allowed` are those that it can
    be sent at once."""
    return {file: wanted[file] for file in CORRECTABLE if file in wanted and wanted[file] != allowed.get(file)}


def needed_at_start(limits: Mapping[str, str]) -> dict[str, str]:
    """Those without which a container of a claim must not start, as they cannot be sent to it once it runs."""
    return {file: content for file, content in limits.items() if file in CORRECTABLE or file.startswith(_HUGETLB)}


def in_force(wanted: Mapping[str, str], found: Mapping[str, str]) -> bool:
    """Whether a cgroup whose files have this content has the wanted limits."""
    return all(file in found and _holds(file, content, found[file]) for file, content in wanted.items())


def lowered_to(limit: int, recorded: Mapping[str, str]) -> dict[str, str]:
    """The recorded limits of a container whose spec is about to get this limit of memory. The runtime writes the limit
    of the spec before all others, so the container never has a higher one for a moment longer."""
    lower = {MEMORY_MAX: str(limit)} if MEMORY_MAX in recorded and _bytes(recorded[MEMORY_MAX]) > limit else {}
    return {**recorded, **lower}


def raised_to(sent: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """The recorded limits of a container that may have been given those of `sent`, which is not known."""
    if MEMORY_MAX not in sent or MEMORY_MAX not in recorded:
        return dict(recorded)
    return {**recorded, MEMORY_MAX: _higher(sent[MEMORY_MAX], recorded[MEMORY_MAX])}


def _holds(file: str, wanted: str, found: str) -> bool:
    if file == MEMS:
        nodes = _nodes(wanted)
        return nodes is not None and nodes == _nodes(found)
    if file == MEMORY_MAX:
        return 0 <= _bytes(wanted) - _bytes(found) < _LARGEST_PAGE
    return wanted == found


def _higher(one: str, other: str) -> str:
    return max(one, other, key=_bytes)


def _bytes(limit: str) -> float:
    return int(limit) if limit.isdecimal() else float("inf")


def _nodes(text: str) -> CpuSet | None:
    """The NUMA nodes in a list, which has the format of a list of CPUs."""
    try:
        return CpuSet.parse(text) or None
    except CpuSetError:
        return None

"""Computes how much memory of a NUMA node can be had at once, so that no program loses any."""

from typing import Final, NamedTuple

from dracpu_agent.topology.topology import TopologyError

_KB: Final = 1024
_FREE: Final = "MemFree"
_FILES: Final = ("Active(file)", "Inactive(file)")  # cached files; those in memory alone, as on tmpfs, do not count
_UNWRITTEN: Final = ("Dirty", "Writeback")


class Available(NamedTuple):
    """The memory that can be had of a NUMA node, in bytes."""

    free: int
    files: int  # in the page cache, and the same on the disk


def available_in(meminfo: str, source: str) -> Available:
    """Reads this from the meminfo of a NUMA node or of the machine."""
    sizes = {}
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        number, *unit = value.split() or [""]
        if unit == ["kB"] and number.isdecimal():
            sizes[name.split()[-1]] = int(number) * _KB
    if _FREE not in sizes:
        raise TopologyError(f"{source} has no {_FREE}")
    files = sum(sizes.get(name, 0) for name in _FILES) - sum(sizes.get(name, 0) for name in _UNWRITTEN)
    return Available(sizes[_FREE], max(0, files))

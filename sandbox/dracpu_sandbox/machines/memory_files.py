"""The files below /sys and /proc that show a machine's memory.

They change while the machine runs, and the thousands of files about its CPUs do not. So a running node has these files
for itself, in a tree whose other parts are links to a tree that equal machines share.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.machines.description import Machine, Memory, Quirk

_NODES: Final = "sys/devices/system/node"
_TIERS: Final = "sys/devices/virtual/memory_tiering"
_COUNTS: Final = ("nr", "free", "surplus")


def memory_files(machine: Machine) -> Iterator[tuple[str, str]]:
    """Yields paths with their contents; nothing if the memory is not described."""
    if not machine.memory:
        return
    yield "proc/meminfo", _meminfo(machine.memory)
    yield from _page_files("sys/kernel/mm", machine.memory)
    if Quirk.NO_NUMA in machine.quirks:
        return
    yield f"{_NODES}/has_memory", f"{CpuSet(memory.numa for memory in machine.memory if memory.kib)}\n"
    for memory in machine.memory:
        directory = f"{_NODES}/node{memory.numa}"
        yield f"{directory}/meminfo", _meminfo([memory], f"Node {memory.numa} ")
        yield from _page_files(directory, [memory])
    for tier in {memory.tier for memory in machine.memory if memory.tier is not None}:
        nodes = CpuSet(memory.numa for memory in machine.memory if memory.tier == tier)
        yield f"{_TIERS}/memory_tier{tier}/nodelist", f"{nodes}\n"


def _page_files(directory: str, nodes: Iterable[Memory]) -> Iterator[tuple[str, str]]:
    sums: defaultdict[int, list[int]] = defaultdict(lambda: [0] * len(_COUNTS))
    for memory in nodes:
        for size, *counts in memory.pages:
            sums[size] = [before + count for before, count in zip(sums[size], counts, strict=True)]
    for size, counts in sums.items():
        for name, count in zip(_COUNTS, counts, strict=True):
            yield f"{directory}/hugepages/hugepages-{size}kB/{name}_hugepages", f"{count}\n"


def _meminfo(nodes: Sequence[Memory], prefix: str = "") -> str:
    """Returns the first lines of a meminfo file."""
    total, free = sum(memory.kib for memory in nodes), sum(memory.free for memory in nodes)
    return f"{prefix}MemTotal:       {total} kB\n{prefix}MemFree:        {free} kB\n"


def write_over(base: Path, made: Path, files: Mapping[str, str]) -> None:
    """Makes a folder that shows the files of `base` by links, and these files instead of its own of the same path."""
    made.mkdir()
    below: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for path, text in files.items():
        name, _, rest = path.partition("/")
        if rest:
            below[name][rest] = text
        else:
            (made / name).write_text(text, encoding="ascii")
    for name, deeper in below.items():
        write_over(base / name, made / name, deeper)
    if base.is_dir():
        for entry in base.iterdir():
            if entry.name not in files and entry.name not in below:
                (made / entry.name).symlink_to(entry)

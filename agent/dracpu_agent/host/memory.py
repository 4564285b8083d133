"""Reads the machine's memory from sysfs and procfs below given root directories: the host's, a dump's or a test's.

This module only reads; memory/inventory.py interprets.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from dracpu_agent.host.files import names_in, numbered, read_text
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages, free_in, page_size_in, persistent, total_in
from dracpu_agent.topology.readings import parse_list, parse_mask
from dracpu_agent.topology.topology import TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet

NODES: Final = "devices/system/node"
_TOTAL: Final = "nr_hugepages"  # includes the surplus
_SURPLUS: Final = "surplus_hugepages"
_READS: Final = 3  # of counts that change meanwhile
TIERS: Final = "devices/virtual/memory_tiering"  # Linux >= 6.1


def read_memory(sysfs_root: Path, procfs_root: Path) -> Inventory:
    """The NUMA nodes with memory; raises TopologyError if none can be read."""
    sysfs = str(sysfs_root)
    tiers = _tiers(sysfs)
    numbers = numbered(names_in(f"{sysfs}/{NODES}"), "node")
    nodes = [_node(sysfs, number, tiers.get(number)) for number in numbers] if numbers else [_whole(sysfs, procfs_root)]
    if not any(node.total for node in nodes):
        place = f"{sysfs}/{NODES}/node*/meminfo" if numbers else f"{procfs_root}/meminfo"
        raise TopologyError(f"no memory in {place}: mount the host's /sys and /proc there, or set the options for them")
    return Inventory(tuple(node for node in nodes if node.total), os.sysconf("SC_PAGE_SIZE"))


def read_free(sysfs_root: Path) -> Mapping[int, int]:
    """NUMA node -> bytes that nothing uses; no nodes where the kernel is built without NUMA. Raises TopologyError."""
    directory = f"{sysfs_root}/{NODES}"
    files = {numa: f"{directory}/node{numa}/meminfo" for numa in numbered(names_in(directory), "node")}
    texts = {numa: read_text(file) for numa, file in files.items()}
    return {numa: free_in(text, files[numa]) for numa, text in texts.items() if text is not None}


def _node(sysfs: str, number: int, tier: int | None) -> NumaMemory:
    directory = f"{sysfs}/{NODES}/node{number}"
    total = _total(f"{directory}/meminfo")
    return NumaMemory(number, _cpus(directory), total, tier, tuple(_pages(f"{directory}/hugepages")))


def _whole(sysfs: str, procfs_root: Path) -> NumaMemory:
    """The machine as one node, where the kernel is built without NUMA."""
    online = _list(f"{sysfs}/devices/system/cpu/online")
    return NumaMemory(0, online, _total(f"{procfs_root}/meminfo"), None, tuple(_pages(f"{sysfs}/kernel/mm/hugepages")))


def _total(path: str) -> int:
    """MemTotal; 0 without the file, which disappears with its node."""
    text = read_text(path)
    return 0 if text is None else total_in(text, path)


def _pages(directory: str) -> Iterator[Pages]:
    sizes = ((page_size_in(name), name) for name in names_in(directory))
    for size, name in sorted((size, name) for size, name in sizes if size is not None):
        read = partial(_count, f"{directory}/{name}")
        count, surplus = persistent_and_surplus(read)
        yield Pages(size, count, read("free_hugepages"), surplus)


def persistent_and_surplus(read: Callable[[str], int]) -> tuple[int, int]:
    """The number of pages that stay when nothing uses them, and of the others. The total and the surplus are in files
    of their own and may change between two reads: they are read again then, and in doubt too few pages count."""
    surplus = read(_SURPLUS)
    for _ in range(_READS):
        total, before, surplus = read(_TOTAL), surplus, read(_SURPLUS)
        if surplus == before:
            break
    return persistent(total, max(surplus, before)), surplus


def _tiers(sysfs: str) -> dict[int, int]:
    """NUMA node -> its tier; nodes without a tier are absent."""
    tiers: dict[int, int] = {}
    for tier in numbered(names_in(f"{sysfs}/{TIERS}"), "memory_tier"):
        # a list of nodes has the format of a list of CPUs
        tiers |= dict.fromkeys(_list(f"{sysfs}/{TIERS}/memory_tier{tier}/nodelist"), tier)
    return tiers


def _cpus(directory: str) -> CpuSet:
    text = read_text(f"{directory}/cpulist")
    if text is not None:
        return parse_list(text, f"{directory}/cpulist")
    mask = read_text(f"{directory}/cpumap")  # Linux before 2.6.39
    return EMPTY if mask is None else parse_mask(mask, f"{directory}/cpumap")


def _list(path: str) -> CpuSet:
    text = read_text(path)
    return EMPTY if text is None else parse_list(text, path)


def _count(directory: str, file: str) -> int:
    """A count of pages; 0 where the file is absent, as it is for sizes that the kernel cannot allocate on a node."""
    path = f"{directory}/{file}"
    text = read_text(path)
    if text is None:
        return 0
    if not text.strip().isdecimal():
        raise TopologyError(f'{path}: "{text.strip()}" is not a number of pages')
    return int(text)

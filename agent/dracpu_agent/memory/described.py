"""Reads a file that describes the memory of a machine, as `dracpu-agent memory -o json` prints it."""

import json
from typing import Any

from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.topology.topology import TopologyError
from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_api.memory_kinds import PAGE_SIZES
from dracpu_api.quantity import whole_number


def memory_described(text: str) -> Inventory:
    """The memory that the text describes; raises TopologyError."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"not JSON: {error}") from error
    if not isinstance(items, list) or not items:
        raise TopologyError("expected what `dracpu-agent memory -o json` prints")
    nodes = [_node(item, place) for place, item in enumerate(items)]
    if len({node.numa for node in nodes}) < len(nodes):
        raise TopologyError("a NUMA node is described twice")
    return Inventory(tuple(sorted(nodes, key=lambda node: node.numa)))


def _node(item: Any, place: int) -> NumaMemory:
    match item:
        case {"numa": int(numa), "cpus": str(cpus), "total": int(total), "hugepages": dict(hugepages)}:
            tier = item.get("tier")
        case _:
            raise TopologyError(f"item {place} must be an object with the fields numa, cpus, total and hugepages")
    if numa < 0 or total <= 0:
        raise TopologyError(f"item {place}: numa {numa} and total {total} must be numbers of a NUMA node with memory")
    try:
        own = CpuSet.parse(cpus)
    except CpuSetError as error:
        raise TopologyError(f"item {place}: cpus: {error}") from error
    pages = (_pages(size, counts, place) for size, counts in hugepages.items())
    tier = tier if isinstance(tier, int) else None
    return NumaMemory(numa, own, total, tier, tuple(sorted(pages, key=lambda found: found.size)))


def _pages(name: str, counts: object, place: int) -> Pages:
    size = whole_number(name)
    match counts:
        case {"pages": int(count), "free": int(free)} if size in PAGE_SIZES and count >= 0:
            return Pages(size, count, free)
        case _:
            raise TopologyError(
                f'item {place}: hugepages must have a size such as "2Mi", with the numbers pages and free'
            )

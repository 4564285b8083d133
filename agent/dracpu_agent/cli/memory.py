"""`dracpu-agent memory`: prints the memory of each NUMA node as a table for people, or as JSON for other programs.

NUMA  CPUS  TIER     TOTAL  2Mi             1Gi
   0  0-15     4  15.6 GiB  512 (498 free)  4 (4 free)
   2  -       22  64.0 GiB  0               0

JSON has the total in bytes. Surplus pages are left out, because the kernel removes them as soon as nothing uses them:

    [{"numa": 0, "cpus": "0-15", "tier": 4, "total": 16700000000, "hugepages": {"2Mi": {"pages": 512, "free": 498}}}]

`tier` is the kernel's number, lower is faster; it is null where the kernel reports none.
"""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dracpu_agent.host.memory import read_memory
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_api.quantity import format_binary

_GIB: Final = 2**30


def print_memory(parsed: Namespace) -> None:
    """The command."""
    inventory = read_memory(Path(parsed.sysfs_root), Path(parsed.procfs_root))
    print(to_json(inventory) if parsed.output == "json" else table(inventory), end="")


def to_json(inventory: Inventory) -> str:
    """Every NUMA node that has memory, one per line."""
    lines = (
        json.dumps(
            {
                "numa": node.numa,
                "cpus": str(node.cpus),
                "tier": node.tier,
                "total": node.total,
                "hugepages": {
                    format_binary(pages.size): {"pages": pages.count, "free": pages.free} for pages in node.pages
                },
            }
        )
        for node in inventory.nodes
    )
    return "[\n  " + ",\n  ".join(lines) + "\n]\n"


def table(inventory: Inventory) -> str:
    """A row for each NUMA node that has memory, and a column for each size of pages."""
    sizes = inventory.page_sizes
    rows = [("NUMA", "CPUS", "TIER", "TOTAL", *map(format_binary, sizes))]
    rows += [_row(node, sizes) for node in inventory.nodes]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = (0, 2, 3)  # the columns of numbers
    return "".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        + "\n"
        for row in rows
    )


def gib(amount: int) -> str:
    """An amount of bytes for people."""
    return f"{amount / _GIB:.1f} GiB"


def _row(node: NumaMemory, sizes: Sequence[int]) -> tuple[str, ...]:
    tier = "-" if node.tier is None else str(node.tier)
    pages = (_pages(node.pages_of(size)) for size in sizes)
    return str(node.numa), str(node.cpus) or "-", tier, gib(node.total), *pages


def _pages(pages: Pages) -> str:
    return f"{pages.count} ({pages.free} free)" if pages.count else "0"

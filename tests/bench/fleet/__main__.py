"""The command line: measures fleets of some sizes and prints a table."""

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fleet.errors import BenchError
from fleet.measure import Figures, measure

SIZES: Final = (500, 1_500, 5_000, 15_000)


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(prog="make bench-operator", description=__doc__)
    parser.add_argument(
        "--sizes", type=_sizes, default=",".join(map(str, SIZES)), help="numbers of nodes (default: %(default)s)"
    )
    parser.add_argument("--idle-seconds", type=float, default=60.0, help="how long the idle operator is measured")
    parsed = parser.parse_args()
    try:
        asyncio.run(_run(parsed.sizes, parsed.idle_seconds))
    except BenchError as error:
        sys.exit(f"bench-operator: {error}")


def _sizes(text: str) -> list[int]:
    try:
        return [int(size) for size in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers like 500,1500") from error


async def _run(sizes: Sequence[int], idle_seconds: float) -> None:
    found: list[Figures] = []
    try:
        for size in sizes:
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
                found.append(await measure(size, Path(folder), idle_seconds=idle_seconds, report=_report))
            _report(f"{size} nodes took {time.monotonic() - began:.0f} s\n")
    finally:  # also when a large size has failed
        if found:
            _print_tables(found)


def _report(line: str) -> None:
    print(line, flush=True)


def _print_tables(found: Sequence[Figures]) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} processors, {platform.machine()}, Python", end=" ")
    print(f"{platform.python_version()}, load {os.getloadavg()[1]:.1f}\n")
    _print_table("figure", {figures.nodes: figures.values for figures in found})
    steps = list(dict.fromkeys(step for figures in found for step in figures.requests))
    print()
    rows = {
        figures.nodes: {
            f"{step}: {what}": str(count) for step in steps for what, count in figures.requests.get(step, {}).items()
        }
        for figures in found
    }
    _print_table("requests", rows)


def _print_table(title: str, columns: dict[int, dict[str, str]]) -> None:
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    print(f"| {title} | {' | '.join(f'{size:,} nodes' for size in columns)} |")
    print(f"|---{'|---:' * len(columns)}|")
    for name in names:
        print(f"| {name} | {' | '.join(values.get(name, '') for values in columns.values())} |")


if __name__ == "__main__":
    main()

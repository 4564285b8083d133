"""`dracpu-agent topology`: prints the machine as a table for people, or as JSON (topology/export.py).

8 CPUs online (0-7): 2 sockets, 2 NUMA nodes, 2 L3 groups, 4 cores of 2 threads
1 reserved (0), marked *
6.0 GiB of memory: 3.0 GiB on NUMA node 0, 3.0 GiB on NUMA node 1

SOCKET  NUMA  L3  TYPE      CPUS  CORES
     0     0   0  standard   0-3  0*,1 2-3
     1     1   1  standard   4-7  4-5 6-7
"""

import textwrap
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dracpu_agent.cli.memory import gib
from dracpu_agent.cli.options import cpuset_of
from dracpu_agent.host.memory import read_memory
from dracpu_agent.host.sysfs import read
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.observe.state import StateError, read_state
from dracpu_agent.topology import export
from dracpu_agent.topology.topology import CoreType, Topology, TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet

WIDTH: Final = 120  # longer lists of cores continue on the next line
LEAST_LIST_WIDTH: Final = 40
NO_MEMORY: Final = Inventory(())  # of a machine whose files do not show it
HEADINGS: Final = ("SOCKET", "NUMA", "L3", "TYPE", "CPUS", "CORES")


def print_topology(parsed: Namespace) -> None:
    """The command."""
    topology = read(Path(parsed.sysfs_root), Path(parsed.procfs_root))
    if parsed.output == "json":
        print(export.to_json(topology), end="")
    else:
        print(table(topology, _reserved(parsed), _memory(parsed)), end="")


def _memory(parsed: Namespace) -> Inventory:
    """The machine's memory; none if the files do not show it, as a dump of a machine may not."""
    try:
        return read_memory(Path(parsed.sysfs_root), Path(parsed.procfs_root))
    except TopologyError:
        return NO_MEMORY


def _reserved(parsed: Namespace) -> CpuSet:
    """The CPUs named by --reserved, else those that the running agent reserves."""
    if parsed.reserved is not None:
        return cpuset_of(parsed.reserved, "--reserved")
    try:
        document = read_state(Path(parsed.state_dir))
    except StateError:
        return EMPTY  # no agent runs here
    assert isinstance(document, dict)
    return CpuSet.parse(document["reserved"])


def table(topology: Topology, reserved: CpuSet = EMPTY, memory: Inventory = NO_MEMORY) -> str:
    """One row for the cores that share socket, NUMA node, L3 cache and type; below them the CPUs that need a remark."""
    rows: dict[tuple[int, int, int, CoreType], list[CpuSet]] = {}
    for threads in topology.cores.values():
        cpu = topology.by_id[threads.lowest]
        rows.setdefault((cpu.socket, cpu.numa, cpu.l3, cpu.type), []).append(threads)
    cells: list[tuple[str, ...]] = [HEADINGS]
    for (socket, numa, l3, core_type), cores in sorted(rows.items(), key=lambda row: (row[0][:3], row[1][0].lowest)):
        l3_name = "-" if l3 < 0 else str(l3)
        words = " ".join(_core(threads, reserved) for threads in cores)
        cells.append((str(socket), str(numa), l3_name, core_type, str(sum(map(len, cores))), words))
    parts = [_summary(topology, reserved, memory), _aligned(cells)]
    remarks = _remarks(topology)
    if remarks:
        parts.append("\n".join(remarks))
    return "\n\n".join(parts) + "\n"


def _summary(topology: Topology, reserved: CpuSet, memory: Inventory) -> str:
    counts = ", ".join(
        (
            _count(len(topology.sockets), "socket"),
            _count(len(topology.numa_nodes), "NUMA node"),
            _count(len(topology.l3_groups), "L3 group"),
            _count(len(topology.cores), "core") + _threads(topology),
        )
    )
    lines = [f"{_count(len(topology.cpus), 'CPU')} online ({topology.online}): {counts}"]
    if marked := reserved & topology.online:
        lines.append(f"{len(marked)} reserved ({marked}), marked *")
    if memory.nodes:
        places = ", ".join(
            f"{gib(node.total)} on NUMA node {node.numa}{'' if node.cpus else ' (without CPUs)'}"
            for node in memory.nodes
        )
        lines.append(f"{gib(sum(node.total for node in memory.nodes))} of memory: {places}")
    return "\n".join(lines)


def _threads(topology: Topology) -> str:
    sizes = sorted({len(threads) for threads in topology.cores.values()})
    if sizes == [1]:
        return ", no SMT"
    return f" of {sizes[0]} threads" if len(sizes) == 1 else f" of {sizes[0]} to {sizes[-1]} threads"


def _core(threads: CpuSet, reserved: CpuSet) -> str:
    if threads.isdisjoint(reserved):
        return str(threads)
    return ",".join(f"{cpu}*" if cpu in reserved else str(cpu) for cpu in threads)


def _aligned(cells: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    start = sum(widths) + 2 * len(widths)
    lines: list[str] = []
    for *short, last in cells:
        padded = [
            cell.ljust(width) if heading == "TYPE" else cell.rjust(width)
            for heading, cell, width in zip(HEADINGS, short, widths, strict=False)
        ]
        wrapped = textwrap.wrap(last, max(LEAST_LIST_WIDTH, WIDTH - start), break_on_hyphens=False)
        lines.append("  ".join([*padded, wrapped[0]]))
        lines.extend(" " * start + line for line in wrapped[1:])
    return "\n".join(lines)


def _remarks(topology: Topology) -> list[str]:
    groups = (
        ("offline", topology.offline),
        ("isolated (isolcpus), offered like other CPUs", topology.isolated),
        ("without timer tick (nohz_full), offered like other CPUs", topology.nohz_full),
    )
    remarks = [f"{name}: {cpus}" for name, cpus in groups if cpus]
    remarks.extend(f"CPU {cpu} is online but not offered: {why}" for cpu, why in topology.incomplete.items())
    return remarks


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

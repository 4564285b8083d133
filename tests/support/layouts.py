"""Reads a CpuNode's layout back into a topology, to show that the layout describes the whole machine."""

from collections.abc import Iterable

from dracpu_agent.topology.layout import Row
from dracpu_agent.topology.topology import CORE_TYPES, CoreType, Cpu, Topology
from dracpu_api.cpuset import CpuSet


def from_layout(rows: Iterable[Row]) -> Topology:
    """Returns the machine that the rows describe; fields that they lack (core_id, offline CPUs) have their defaults."""
    cpus: list[Cpu] = []
    for row in rows:
        core_type: CoreType = "standard"
        for word in row["cores"].split():
            if word in CORE_TYPES:
                core_type = word
                continue
            threads = CpuSet.parse(word)
            cpus.extend(
                Cpu(cpu, threads.lowest, threads.lowest, row["socket"], row["numa"], row["l3"], core_type)
                for cpu in threads
            )
    return Topology(tuple(sorted(cpus, key=lambda cpu: cpu.id)))

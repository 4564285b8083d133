"""The topology in compact form, for `CpuNode.status.topology.layout`: small enough for etcd, complete enough to draw.

One row describes the cores that share socket, NUMA node and L3 cache. Each core is the cpuset of its threads:

    {"socket": 0, "numa": 0, "l3": 0, "cores": "0,64 1,65 2,66 3,67"}

On a hybrid machine the name of a core type precedes the cores of that type: "p-core 0-1 2-3 e-core 4 5 6 7".
512 CPUs take 3 to 4 KiB.
"""

from typing import TypedDict

from dracpu_agent.topology.topology import CORE_TYPES, CoreType, Cpu, Topology


class Row(TypedDict):
    """Cores that share socket, NUMA node and L3 cache."""

    socket: int
    numa: int
    l3: int  # -1: the kernel reports no L3 cache
    cores: str


def layout(topology: Topology) -> list[Row]:
    """The rows of a machine, by socket, NUMA node and L3 cache."""
    rows: dict[tuple[int, int, int], list[Cpu]] = {}
    for threads in topology.cores.values():
        cpu = topology.by_id[threads.lowest]
        rows.setdefault((cpu.socket, cpu.numa, cpu.l3), []).append(cpu)
    return [
        Row(socket=socket, numa=numa, l3=l3, cores=_words(topology, cores))
        for (socket, numa, l3), cores in sorted(rows.items())
    ]


def _words(topology: Topology, cores: list[Cpu]) -> str:
    words: list[str] = []
    core_type: CoreType = "standard"
    for core in sorted(cores, key=lambda cpu: (CORE_TYPES.index(cpu.type), cpu.id)):
        if core.type != core_type:
            core_type = core.type
            words.append(core_type)
        words.append(str(topology.cores[core.core]))
    return " ".join(words)

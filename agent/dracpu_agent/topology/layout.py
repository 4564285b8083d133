"""The machine in a few lines, for `CpuNode.status.topology.layout`: small enough for etcd, enough to draw it.

One row for the cores that share socket, NUMA node and L3 cache; each core is the cpuset of its threads:

    {"socket": 0, "numa": 0, "l3": 0, "cores": "0,64 1,65 2,66 3,67"}

On a hybrid machine the name of a type stands before the cores of that type: "p-core 0-1 2-3 e-core 4 5 6 7".
512 CPUs take 3 to 4 KiB.
"""

from collections.abc import Iterable
from typing import TypedDict

from dracpu_agent.topology.topology import CORE_TYPES, CoreType, Cpu, Topology, TopologyError
from dracpu_api.cpuset import CpuSet, CpuSetError


class Row(TypedDict):
    """Cores that stand together."""

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


def from_layout(rows: Iterable[Row]) -> Topology:
    """The machine that the rows describe; what they do not carry (core_id, offline CPUs) is left at its default."""
    cpus: list[Cpu] = []
    for row in rows:
        kind: CoreType = "standard"
        for word in row["cores"].split():
            if word in CORE_TYPES:
                kind = word
                continue
            threads = _threads(word)
            cpus.extend(
                Cpu(cpu, threads.lowest, threads.lowest, row["socket"], row["numa"], row["l3"], kind) for cpu in threads
            )
    if not cpus:
        raise TopologyError("the layout names no CPU")
    if len({cpu.id for cpu in cpus}) < len(cpus):
        raise TopologyError("the layout names a CPU twice")
    return Topology(tuple(sorted(cpus, key=lambda cpu: cpu.id)))


def _words(topology: Topology, cores: list[Cpu]) -> str:
    words: list[str] = []
    kind: CoreType = "standard"
    for core in sorted(cores, key=lambda cpu: (CORE_TYPES.index(cpu.type), cpu.id)):
        if core.type != kind:
            kind = core.type
            words.append(kind)
        words.append(str(topology.cores[core.core]))
    return " ".join(words)


def _threads(word: str) -> CpuSet:
    try:
        return CpuSet.parse(word)
    except CpuSetError as error:
        raise TopologyError(f"the layout's cores: {error}") from error

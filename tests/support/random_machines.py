"""Hypothesis strategies for machines, ordinary and strange, that the allocator must handle."""

from collections.abc import Mapping, Sequence
from random import Random

from hypothesis import strategies as st

from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api.cpuset import CpuSet

# Machines are made from seeds: hypothesis' own draws prefer small and equal values, but large uneven ones find defects.
_RANDOM = st.integers(0, 2**32 - 1).map(Random)


@st.composite
def machines(draw: st.DrawFn, *, max_numa_nodes: int = 16) -> Topology:
    """Cores of one to four threads, some offline, numbered adjacently or apart and with gaps; up to 16 NUMA nodes.

    Sockets, NUMA nodes and L3 groups are drawn independently, so they nest, overlap or are scattered. Some CPUs have no
    L3 information. On some machines the threads of a core belong to different groups.
    """
    random = draw(_RANDOM)
    return _machine(random, draw(st.integers(1, 24)), draw(st.integers(1, max_numa_nodes)))


@st.composite
def available(draw: st.DrawFn, topology: Topology) -> CpuSet:
    """Free CPUs of a machine: all, some, or whole groups."""
    random = draw(_RANDOM)
    kind = draw(st.sampled_from(["all", "some", "most", "cores", "nodes"]))
    if kind in ("cores", "nodes"):
        groups = topology.cores if kind == "cores" else topology.numa_nodes
        return CpuSet(cpu for cpus in groups.values() if random.random() < 0.6 for cpu in cpus)
    share = {"all": 1.0, "most": 0.9, "some": 0.5}[kind]
    return CpuSet(cpu.id for cpu in topology.cpus if random.random() < share)


def _machine(random: Random, cores: int, numa_nodes: int) -> Topology:
    threads = random.choices(random.choice([[1, 2], [1, 2, 3, 4], [2, 3], [2], [1]]), k=cores)
    core_of = _numbered(random, threads)
    # The units that are placed: cores, or rarely single CPUs.
    unit_of = core_of if random.random() < 0.75 else {cpu: place for place, cpu in enumerate(sorted(core_of))}
    socket = _placed(random, unit_of, random.randint(1, 4))
    numa = _placed(random, unit_of, numa_nodes)
    l3 = _placed(random, unit_of, random.randint(1, 16), none_at_times=True)
    lowest = {core: min(cpu for cpu in core_of if core_of[cpu] == core) for core in set(core_of.values())}
    online = [cpu for cpu in sorted(core_of) if random.random() < 0.8] if random.random() < 0.3 else []
    return Topology(
        tuple(
            Cpu(cpu, lowest[core_of[cpu]], core_of[cpu], socket[cpu], numa[cpu], l3[cpu])
            for cpu in online or sorted(core_of)
        )
    )


def _numbered(random: Random, threads: Sequence[int]) -> Mapping[int, int]:
    """CPU -> core: the threads of a core are adjacent, or all first threads precede all second ones."""
    slots = [core for core, count in enumerate(threads) for _ in range(count)]
    if random.random() < 0.5:
        slots = [core for thread in range(max(threads)) for core, count in enumerate(threads) if thread < count]
    gap = random.choice([1, 1, 2, 5])
    return {place * gap: core for place, core in enumerate(slots)}


def _placed(
    random: Random, unit_of: Mapping[int, int], groups: int, *, none_at_times: bool = False
) -> Mapping[int, int]:
    """CPU -> group: blocks of neighbours, or scattered. Group -1: the CPU has no L3 information."""
    names = random.sample(range(40), groups)
    if none_at_times and random.random() < 0.3:
        names[0] = -1
    units = max(unit_of.values()) + 1
    if random.random() < 0.5:
        return {cpu: names[unit * groups // units] for cpu, unit in unit_of.items()}
    scattered = random.choices(names, k=units)
    return {cpu: scattered[unit] for cpu, unit in unit_of.items()}

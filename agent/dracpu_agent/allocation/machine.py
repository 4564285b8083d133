"""The machine in the form that the allocator uses: every group of CPUs as an integer mask, built once per topology.

This room uses two kinds of masks. In a mask of CPUs, bit n stands for CPU n. In a mask of cores, bit n stands for the
core whose lowest CPU is n. The threads of a core usually have one or two fixed distances from its lowest CPU (1 if they
are numbered adjacently, half the machine if not). One shift per distance turns a mask of CPUs into the mask of their
cores and back, so that a question about all cores takes few integer operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from dracpu_agent.topology.topology import Cpu, Topology


@dataclass(frozen=True, slots=True)
class Group:
    """A socket, a NUMA node or an uncore: CPUs that share something."""

    id: int
    mask: int
    size: int


@dataclass(frozen=True, slots=True)
class Machine:
    """All CPUs of a machine and their groups; it does not record which CPUs are free."""

    cpus: int
    sockets: tuple[Group, ...]
    numa_nodes: tuple[Group, ...]
    uncores: tuple[Group, ...]  # CPUs that share an L3 cache
    # Whether NUMA nodes are the larger groups, by the kubelet's rule. The larger of the two are called "outer".
    numa_first: bool
    inner_of: Mapping[int, tuple[Group, ...]]  # outer id -> the inner groups that have CPUs in it
    uncores_of: Mapping[int, tuple[Group, ...]]  # NUMA node -> the uncores that have CPUs in it
    threads: tuple[tuple[int, int], ...]  # (distance, CPUs at this distance from the lowest of their core)
    cpus_per_core: int  # the machine's average, rounded down
    cpus_per_uncore: int  # likewise

    @classmethod
    def of(cls, topology: Topology) -> "Machine":
        """Builds the groups of a topology, without offline and incompletely described CPUs."""
        sockets = _groups({cpu.id: cpu.socket for cpu in topology.cpus})
        numa_nodes = _groups({cpu.id: cpu.numa for cpu in topology.cpus})
        # As in the kubelet, a CPU without L3 information belongs to the uncore with its socket's number.
        uncores = _groups({cpu.id: cpu.socket if cpu.l3 < 0 else cpu.l3 for cpu in topology.cpus})
        numa_first = len(sockets) >= len(numa_nodes)
        outer, inner = (numa_nodes, sockets) if numa_first else (sockets, numa_nodes)
        return cls(
            cpus=topology.online.mask,
            sockets=sockets,
            numa_nodes=numa_nodes,
            uncores=uncores,
            numa_first=numa_first,
            inner_of=_members(outer, inner),
            uncores_of=_members(numa_nodes, uncores),
            threads=_thread_distances(topology.cpus),
            cpus_per_core=len(topology.cpus) // len(topology.cores),
            cpus_per_uncore=len(topology.cpus) // len(uncores),
        )

    @property
    def outer(self) -> tuple[Group, ...]:
        """The larger of sockets and NUMA nodes."""
        return self.numa_nodes if self.numa_first else self.sockets

    @property
    def inner(self) -> tuple[Group, ...]:
        """The smaller of sockets and NUMA nodes."""
        return self.sockets if self.numa_first else self.numa_nodes

    def cores_of(self, cpus: int) -> int:
        """The cores that any of these CPUs belongs to."""
        cores = 0
        for distance, at_distance in self.threads:
            cores |= (cpus & at_distance) >> distance
        return cores

    def cpus_of(self, cores: int) -> int:
        """All CPUs of these cores."""
        cpus = 0
        for distance, at_distance in self.threads:
            cpus |= (cores << distance) & at_distance
        return cpus

    def whole_cores(self, cpus: int) -> int:
        """The cores whose CPUs are all among these."""
        return self.cores_of(cpus) & ~self.cores_of(self.cpus & ~cpus)

    def cores_by_threads(self, cpus: int) -> list[tuple[int, int]]:
        """(t, the cores with exactly t CPUs among these), for every t that occurs, ascending."""
        at_least: list[int] = []  # [t]: cores with more than t CPUs among the distances so far
        for distance, at_distance in self.threads:
            cores = (cpus & at_distance) >> distance
            for count, reached in enumerate(at_least):
                at_least[count] = reached | cores
                cores &= reached  # only cores that had this count already reach the next one
            if cores:
                at_least.append(cores)
        exactly = [reached & ~more for reached, more in pairwise([*at_least, 0])]
        return [(count, cores) for count, cores in enumerate(exactly, start=1) if cores]


def lowest(mask: int, count: int) -> int:
    """The `count` lowest bits of a mask, or all bits if there are fewer."""
    if mask.bit_count() <= count:
        return mask
    low, high = count, mask.bit_length()  # the shortest prefix with `count` bits has between low and high
    while low < high:
        middle = (low + high) // 2
        if (mask & ((1 << middle) - 1)).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return mask & ((1 << low) - 1)


def _groups(group_of: Mapping[int, int]) -> tuple[Group, ...]:
    masks: dict[int, int] = {}
    for cpu, group in group_of.items():
        masks[group] = masks.get(group, 0) | 1 << cpu
    return tuple(Group(group, masks[group], masks[group].bit_count()) for group in sorted(masks))


def _members(parents: tuple[Group, ...], groups: tuple[Group, ...]) -> Mapping[int, tuple[Group, ...]]:
    return {parent.id: tuple(group for group in groups if group.mask & parent.mask) for parent in parents}


def _thread_distances(cpus: tuple[Cpu, ...]) -> tuple[tuple[int, int], ...]:
    masks: dict[int, int] = {}
    for cpu in cpus:
        distance = cpu.id - cpu.core  # never negative: a core is named after its lowest CPU
        masks[distance] = masks.get(distance, 0) | 1 << cpu.id
    return tuple(sorted(masks.items()))

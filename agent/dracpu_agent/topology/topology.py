"""The topology of a machine: its CPUs and the groups that they form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, get_args

from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.errors import DriverError

CoreType = Literal["standard", "p-core", "e-core", "lp-e-core"]
CORE_TYPES: Final[tuple[CoreType, ...]] = get_args(CoreType)


class TopologyError(DriverError):
    """A machine or a description of a machine that is incomplete or invalid; the message names the fault."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """One logical CPU that is online and fully described by the kernel."""

    id: int
    core: int  # the lowest online CPU of the physical core: unique on the machine, unlike core_id
    core_id: int  # the hardware's number of the core, which may repeat in another socket
    socket: int
    numa: int
    l3: int  # -1: the kernel reports no L3 cache
    type: CoreType = "standard"


@dataclass(frozen=True)
class Topology:
    """All online, completely described CPUs of a machine, and what is known of the others."""

    cpus: tuple[Cpu, ...]  # ascending by id, never empty
    arch: str = ""
    offline: CpuSet = EMPTY  # present, but switched off
    isolated: CpuSet = EMPTY  # kernel command line isolcpus; reported, but offered like other CPUs
    nohz_full: CpuSet = EMPTY
    incomplete: Mapping[int, str] = field(default_factory=dict)  # online CPUs that are not offered, and why
    forbidden: CpuSet = EMPTY  # online, but outside of the cpuset of the cgroup that contains all pods
    gone: tuple[Cpu, ...] = ()  # CPUs that were in `cpus` before, as they were then
    pcie_roots: Mapping[str, CpuSet] = field(default_factory=dict)  # "pci0000:00" -> online CPUs close to it

    @cached_property
    def online(self) -> CpuSet:
        """Every CPU that can be offered or shared."""
        return CpuSet(cpu.id for cpu in self.cpus)

    @cached_property
    def by_id(self) -> Mapping[int, Cpu]:
        """CPU id -> CPU."""
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def known(self) -> Mapping[int, Cpu]:
        """CPU id -> CPU, including CPUs that are gone."""
        return {cpu.id: cpu for cpu in (*self.gone, *self.cpus)}

    @cached_property
    def present(self) -> CpuSet:
        """Every CPU that the machine has or had, online or not."""
        gone = CpuSet(cpu.id for cpu in self.gone)
        return self.online | self.offline | self.forbidden | CpuSet(self.incomplete) | gone

    @cached_property
    def cores(self) -> Mapping[int, CpuSet]:
        """Core (lowest CPU id) -> its online threads, in ascending order of core."""
        return self._group(lambda cpu: cpu.core)

    @cached_property
    def sockets(self) -> Mapping[int, CpuSet]:
        """Socket id -> its CPUs, ascending."""
        return self._group(lambda cpu: cpu.socket)

    @cached_property
    def numa_nodes(self) -> Mapping[int, CpuSet]:
        """NUMA node id -> its CPUs, ascending; nodes without CPUs are absent."""
        return self._group(lambda cpu: cpu.numa)

    @cached_property
    def l3_groups(self) -> Mapping[int, CpuSet]:
        """L3 id -> its CPUs, ascending; CPUs without L3 information are absent."""
        return {l3: cpus for l3, cpus in self._group(lambda cpu: cpu.l3).items() if l3 >= 0}

    @cached_property
    def smt(self) -> bool:
        """True when a core has more than one online thread."""
        return any(len(threads) > 1 for threads in self.cores.values())

    def _group(self, key: Callable[[Cpu], int]) -> Mapping[int, CpuSet]:
        masks: dict[int, int] = {}
        for cpu in self.cpus:
            masks[key(cpu)] = masks.get(key(cpu), 0) | 1 << cpu.id
        return {name: CpuSet.of_mask(masks[name]) for name in sorted(masks)}

"""Reads the machine from sysfs and procfs below given root directories: the host's, a dump's or a test's.

This module only reads; topology/readings.py interprets. Each shared list is read once, not once per CPU. Unneeded files
are not read: a core's list of CPUs shows SMT on every kernel, while smt/control may be `notimplemented`, and nothing
uses dies or clusters.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dracpu_agent.host.files import names_in, numbered, read_text
from dracpu_agent.host.pcie import read_roots
from dracpu_agent.topology.readings import (
    UNKNOWN,
    Group,
    Readings,
    arch_of,
    decide,
    merge_by_id,
    parse_list,
    parse_mask,
    partition,
)
from dracpu_agent.topology.topology import CoreType, Topology, TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet

# Names of the same list, in order of preference: Linux >= 5.3, then older lists, then the masks of still older kernels.
CORE_LISTS: Final = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
PACKAGE_LISTS: Final = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
CACHE_LISTS: Final = ("shared_cpu_list", "shared_cpu_map")
NODE_LISTS: Final = ("cpulist", "cpumap")
MASKS: Final = frozenset({"core_cpus", "thread_siblings", "package_cpus", "core_siblings", "shared_cpu_map", "cpumap"})

# The perf devices of a hybrid x86 machine. The list of the e-cores may contain low-power cores, too.
CORE_TYPE_DEVICES: Final[tuple[tuple[CoreType, str], ...]] = (
    ("lp-e-core", "cpu_lowpower"),
    ("p-core", "cpu_core"),
    ("e-core", "cpu_atom"),
)


def read(sysfs_root: Path, procfs_root: Path) -> Topology:
    """The machine whose /sys and /proc are mounted here; raises TopologyError if its description is not usable."""
    sysfs = _Sysfs(str(sysfs_root))
    online = read_online(sysfs_root)
    lacking = sysfs.lacking(online)
    described = online - CpuSet(lacking)
    cores = partition(described, sysfs.core)
    lowest = CpuSet(core.cpus.lowest for core in cores)
    package_groups = partition(described, sysfs.package)
    topology = decide(
        Readings(
            online=online,
            cores=cores,
            sockets=package_groups if sysfs.has_package_lists else merge_by_id(package_groups),
            l3=_whole_cores(partition(lowest, sysfs.l3), cores),
            numa=sysfs.numa_nodes(online),
            core_types=[(name, sysfs.cpus(f"devices/{device}/cpus")) for name, device in CORE_TYPE_DEVICES],
            capacities=sysfs.capacities(lowest),
            lacking=lacking,
            present=sysfs.cpus("devices/system/cpu/present"),
            isolated=sysfs.cpus("devices/system/cpu/isolated"),
            nohz_full=sysfs.cpus("devices/system/cpu/nohz_full"),
            arch=_arch(procfs_root),
        )
    )
    close = ((root, cpus & topology.online) for root, cpus in read_roots(sysfs_root).items())
    return replace(topology, pcie_roots={root: cpus for root, cpus in close if cpus})


def read_online(sysfs_root: Path) -> CpuSet:
    """The online CPUs, from one small file that is cheap enough to poll."""
    path = sysfs_root / "devices/system/cpu/online"
    text = read_text(str(path))
    if text is None:
        raise TopologyError(f"{path} cannot be read: mount the host's /sys there, or set --sysfs-root")
    return parse_list(text, str(path))


class _Sysfs:
    """The sysfs files of one machine. An unreadable file counts as absent."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._core_list = self._package_list = ""  # the names that these lists have on this machine
        self._l3_index = "index3"  # where the L3 cache was found last; most machines have one place for all CPUs

    @property
    def has_package_lists(self) -> bool:
        """True if the kernel lists the CPUs of a socket; otherwise it reports only ids."""
        return bool(self._package_list)

    def lacking(self, online: CpuSet) -> dict[int, str]:
        """CPUs that lack a file that others have, with the reason. A file that no CPU has is unknown to this kernel.

        A CPU loses its topology directory while it goes offline, and firmware may omit single CPUs.
        """
        files = {cpu: names_in(f"{self._root}/devices/system/cpu/cpu{cpu}/topology") for cpu in online}
        known = frozenset[str]().union(*files.values())
        self._core_list = _first(CORE_LISTS, known)
        self._package_list = _first(PACKAGE_LISTS, known)
        needed = [self._core_list or CORE_LISTS[0]]  # without it no CPU can be described
        needed += [name for name in (self._package_list, "physical_package_id", "core_id") if name in known]
        lacking: dict[int, str] = {}
        for cpu, names in files.items():
            missing = [name for name in needed if name not in names]
            if missing:
                lacking[cpu] = f"sysfs has no {', '.join(f'topology/{name}' for name in missing)}"
        return lacking

    def core(self, cpu: int) -> Group | None:
        """The threads of the CPU's core; None if the list omits the CPU itself, which happens while it goes offline."""
        directory = f"devices/system/cpu/cpu{cpu}/topology"
        cpus = self.cpus(f"{directory}/{self._core_list}")
        return Group(cpus, self._number(f"{directory}/core_id")) if cpu in cpus else None

    def package(self, cpu: int) -> Group | None:
        """The CPUs of the CPU's socket; None as for `core`. Without lists, only this CPU, with the socket's id."""
        directory = f"devices/system/cpu/cpu{cpu}/topology"
        cpus = self.cpus(f"{directory}/{self._package_list}") if self._package_list else CpuSet((cpu,))
        return Group(cpus, self._number(f"{directory}/physical_package_id")) if cpu in cpus else None

    def l3(self, cpu: int) -> Group | None:
        """The CPUs that share the CPU's L3 cache; None without an L3 cache or a list of its CPUs."""
        cache = f"devices/system/cpu/cpu{cpu}/cache"
        if self._number(f"{cache}/{self._l3_index}/level") != 3:
            names = sorted(name for name in names_in(f"{self._root}/{cache}") if name.startswith("index"))
            found = next((name for name in names if self._number(f"{cache}/{name}/level") == 3), None)
            if found is None:
                return None
            self._l3_index = found
        directory = f"{cache}/{self._l3_index}"
        name = _first(CACHE_LISTS, names_in(f"{self._root}/{directory}"))
        cpus = self.cpus(f"{directory}/{name}") if name else EMPTY
        return Group(cpus, self._number(f"{directory}/id")) if cpu in cpus else None

    def numa_nodes(self, online: CpuSet) -> list[Group]:
        """The NUMA nodes with online CPUs, ascending; a CPU that two nodes list belongs to the lower one."""
        nodes: list[Group] = []
        left = online
        for number in numbered(names_in(f"{self._root}/devices/system/node"), "node"):
            directory = f"devices/system/node/node{number}"
            name = _first(NODE_LISTS, names_in(f"{self._root}/{directory}"))
            cpus = self.cpus(f"{directory}/{name}") & left if name else EMPTY
            if cpus:
                nodes.append(Group(cpus, number))
            left -= cpus
        return nodes + (self._linked_nodes(left) if nodes else [])

    def _linked_nodes(self, cpus: CpuSet) -> list[Group]:
        """Nodes that are offline themselves, as nodes without memory may be: only a link of each CPU names its node."""
        links = ((cpu, numbered(names_in(f"{self._root}/devices/system/cpu/cpu{cpu}"), "node")) for cpu in cpus)
        return [Group(CpuSet((cpu,)), nodes[0]) for cpu, nodes in links if nodes]

    def capacities(self, cpus: CpuSet) -> dict[int, int]:
        """The relative capacity of the CPUs; empty if the kernel does not report it."""
        if not cpus or self._number(f"devices/system/cpu/cpu{cpus.lowest}/cpu_capacity") < 0:
            return {}
        found = {cpu: self._number(f"devices/system/cpu/cpu{cpu}/cpu_capacity") for cpu in cpus}
        return {cpu: capacity for cpu, capacity in found.items() if capacity >= 0}

    def cpus(self, path: str) -> CpuSet:
        """The CPUs in a file, a list or a mask; none if the file is absent."""
        text = read_text(f"{self._root}/{path}")
        if text is None:
            return EMPTY
        parse = parse_mask if path.rpartition("/")[2] in MASKS else parse_list
        return parse(text, f"{self._root}/{path}")

    def _number(self, path: str) -> int:
        text = read_text(f"{self._root}/{path}")
        if text is None:
            return UNKNOWN
        try:
            return int(text)
        except ValueError as error:
            raise TopologyError(f'{self._root}/{path}: "{text.strip()}" is not a number') from error


def _whole_cores(groups: Sequence[Group], cores: Sequence[Group]) -> list[Group]:
    """Groups of each core's lowest CPU, widened to all threads: a core's threads share every cache."""
    threads = {core.cpus.lowest: core.cpus.mask for core in cores}
    widened: list[Group] = []
    for group in groups:
        mask = 0
        for cpu in group.cpus:
            mask |= threads[cpu]
        widened.append(Group(CpuSet.of_mask(mask), group.id))
    return widened


def _arch(procfs_root: Path) -> str:
    name = read_text(f"{procfs_root}/sys/kernel/arch")  # Linux >= 6.1
    if name is not None:
        return name.strip()
    # The first page suffices. For the whole file the kernel would measure the frequency of every CPU.
    return arch_of(read_text(f"{procfs_root}/cpuinfo", pages=1) or "")


def _first(candidates: Sequence[str], names: frozenset[str]) -> str:
    return next((name for name in candidates if name in names), "")

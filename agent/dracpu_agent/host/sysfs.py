"""Reads the machine below a root directory, so that tests, dumps and containers read theirs in the same way.

Only reads: what the readings mean is decided in readings.py. Each shared list is read once, not once per CPU. What
does not help is not read: SMT shows in the lists of a core's CPUs on every kernel, while smt/control may say
`notimplemented`; dies and clusters matter to nobody above.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

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

PAGE: Final = 4096  # sysfs and procfs hand out at most a page per read

# One list under its names: Linux >= 5.3 first, then the older ones, then the masks of kernels before the lists.
CORE_LISTS: Final = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
PACKAGE_LISTS: Final = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
CACHE_LISTS: Final = ("shared_cpu_list", "shared_cpu_map")
NODE_LISTS: Final = ("cpulist", "cpumap")
MASKS: Final = frozenset({"core_cpus", "thread_siblings", "package_cpus", "core_siblings", "shared_cpu_map", "cpumap"})

# The perf devices of a hybrid x86 machine; a low-power core may stand in the list of the e-cores as well.
CORE_TYPE_DEVICES: Final[tuple[tuple[CoreType, str], ...]] = (
    ("lp-e-core", "cpu_lowpower"),
    ("p-core", "cpu_core"),
    ("e-core", "cpu_atom"),
)


def read(sysfs_root: Path, procfs_root: Path) -> Topology:
    """The machine whose /sys and /proc are mounted here; raises TopologyError with what is missing."""
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
    """The CPUs that are online: one small file, cheap enough to poll."""
    path = sysfs_root / "devices/system/cpu/online"
    text = _text(str(path))
    if text is None:
        raise TopologyError(f"{path} cannot be read: mount the host's /sys there, or set --sysfs-root")
    return parse_list(text, str(path))


class _Sysfs:
    """The files of one machine. Absent and unreadable are the same answer: the kernel does not tell."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._core_list = self._package_list = ""  # which of its names a list has on this machine
        self._l3_index = "index3"  # where the L3 cache was found last; the same for all CPUs of most machines

    @property
    def has_package_lists(self) -> bool:
        """Whether the kernel lists the CPUs of a socket; else there are only ids."""
        return bool(self._package_list)

    def lacking(self, online: CpuSet) -> dict[int, str]:
        """CPUs without a file that others have. What no CPU has, this kernel does not report at all.

        A CPU loses its topology directory while it goes offline; firmware may forget single CPUs.
        """
        files = {cpu: _names(f"{self._root}/devices/system/cpu/cpu{cpu}/topology") for cpu in online}
        known = frozenset[str]().union(*files.values())
        self._core_list = _first(CORE_LISTS, known)
        self._package_list = _first(PACKAGE_LISTS, known)
        needed = [self._core_list or CORE_LISTS[0]]  # without any list of cores nothing can be said of any CPU
        needed += [name for name in (self._package_list, "physical_package_id", "core_id") if name in known]
        lacking: dict[int, str] = {}
        for cpu, names in files.items():
            missing = [name for name in needed if name not in names]
            if missing:
                lacking[cpu] = f"sysfs has no {', '.join(f'topology/{name}' for name in missing)}"
        return lacking

    def core(self, cpu: int) -> Group | None:
        """The threads of the CPU's core; None when the list leaves out the CPU itself, as on its way offline."""
        directory = f"devices/system/cpu/cpu{cpu}/topology"
        cpus = self.cpus(f"{directory}/{self._core_list}")
        return Group(cpus, self._number(f"{directory}/core_id")) if cpu in cpus else None

    def package(self, cpu: int) -> Group | None:
        """The CPUs of the CPU's socket; None as for `core`. Without any lists, the CPU alone with the socket's id."""
        directory = f"devices/system/cpu/cpu{cpu}/topology"
        cpus = self.cpus(f"{directory}/{self._package_list}") if self._package_list else CpuSet((cpu,))
        return Group(cpus, self._number(f"{directory}/physical_package_id")) if cpu in cpus else None

    def l3(self, cpu: int) -> Group | None:
        """The CPUs that share the CPU's L3 cache; None where there is none or the kernel does not say who shares it."""
        cache = f"devices/system/cpu/cpu{cpu}/cache"
        if self._number(f"{cache}/{self._l3_index}/level") != 3:
            names = sorted(name for name in _names(f"{self._root}/{cache}") if name.startswith("index"))
            found = next((name for name in names if self._number(f"{cache}/{name}/level") == 3), None)
            if found is None:
                return None
            self._l3_index = found
        directory = f"{cache}/{self._l3_index}"
        name = _first(CACHE_LISTS, _names(f"{self._root}/{directory}"))
        cpus = self.cpus(f"{directory}/{name}") if name else EMPTY
        return Group(cpus, self._number(f"{directory}/id")) if cpu in cpus else None

    def numa_nodes(self, online: CpuSet) -> list[Group]:
        """The NUMA nodes that have online CPUs, ascending; a CPU that two nodes name belongs to the lower one."""
        nodes: list[Group] = []
        left = online
        for number in _numbered(_names(f"{self._root}/devices/system/node"), "node"):
            directory = f"devices/system/node/node{number}"
            name = _first(NODE_LISTS, _names(f"{self._root}/{directory}"))
            cpus = self.cpus(f"{directory}/{name}") & left if name else EMPTY
            if cpus:
                nodes.append(Group(cpus, number))
            left -= cpus
        return nodes + (self._linked_nodes(left) if nodes else [])

    def _linked_nodes(self, cpus: CpuSet) -> list[Group]:
        """CPUs of a node that is itself offline, as a node without memory may be: only their own link names it."""
        links = ((cpu, _numbered(_names(f"{self._root}/devices/system/cpu/cpu{cpu}"), "node")) for cpu in cpus)
        return [Group(CpuSet((cpu,)), nodes[0]) for cpu, nodes in links if nodes]

    def capacities(self, cpus: CpuSet) -> dict[int, int]:
        """How strong the CPUs are relative to each other, where the kernel says so."""
        if not cpus or self._number(f"devices/system/cpu/cpu{cpus.lowest}/cpu_capacity") < 0:
            return {}
        found = {cpu: self._number(f"devices/system/cpu/cpu{cpu}/cpu_capacity") for cpu in cpus}
        return {cpu: capacity for cpu, capacity in found.items() if capacity >= 0}

    def cpus(self, path: str) -> CpuSet:
        """The CPUs that a file names, as a list or as a mask; none when there is no such file."""
        text = _text(f"{self._root}/{path}")
        if text is None:
            return EMPTY
        parse = parse_mask if path.rpartition("/")[2] in MASKS else parse_list
        return parse(text, f"{self._root}/{path}")

    def _number(self, path: str) -> int:
        text = _text(f"{self._root}/{path}")
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
    name = _text(f"{procfs_root}/sys/kernel/arch")  # Linux >= 6.1
    if name is not None:
        return name.strip()
    # The first page tells. All of it costs the kernel a frequency measurement on every CPU.
    return arch_of(_text(f"{procfs_root}/cpuinfo", pages=1) or "")


def _first(candidates: Sequence[str], names: frozenset[str]) -> str:
    return next((name for name in candidates if name in names), "")


def _numbered(names: frozenset[str], prefix: str) -> list[int]:
    """The numbers n of the names `<prefix>n`, ascending."""
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(number) for number in numbers if number.isdecimal())


def _names(directory: str) -> frozenset[str]:
    """What is in a directory; nothing when there is none."""
    try:
        return frozenset(os.listdir(directory))  # noqa: PTH208 - Path.iterdir makes an object of each name
    except OSError:
        return frozenset()


def _text(path: str, pages: int = 64) -> str | None:
    """The file's text, None when it cannot be read. Plain system calls: `open` costs three times as much."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(file, PAGE)
        if len(text) == PAGE:
            text += _rest(lambda: os.read(file, PAGE), pages - 1)
    except OSError:
        return None  # a CPU that goes offline takes its files with it: ENODEV, EINVAL
    finally:
        os.close(file)
    return text.decode("ascii", "replace").rstrip("\0\n")


def _rest(read_page: Callable[[], bytes], pages: int) -> bytes:
    parts: list[bytes] = []
    for _ in range(pages):
        parts.append(read_page())
        if not parts[-1]:
            break
    return b"".join(parts)

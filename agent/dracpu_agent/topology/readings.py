"""Turns the kernel's description of a machine into a Topology; host/sysfs.py reads the files.

The kernel describes a machine twice: by numbers (core_id, physical_package_id, a cache's id) and by lists of the CPUs
that share something. The numbers repeat: core ids in each socket, die or cluster, package ids in each book of an
s390, and where firmware gives none they are -1 or 65535. The kernel's own scheduler uses the lists. So lists decide
which CPUs belong together, and numbers only name the groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dracpu_agent.topology.topology import CoreType, Cpu, Topology, TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError

UNKNOWN: Final = -1  # the kernel's own value for an unknown id

# A core with less than this share of the strongest core's capacity is an e-core. Arm's little cores reach at most
# 0.6 of their big neighbours; cores of one kind differ by a few percent when firmware rates each core separately.
E_CORE_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class Group:
    """CPUs that share something, and the number that the kernel gives to it."""

    cpus: CpuSet
    id: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Readings:
    """The values read from a machine. Groups hold online CPUs and do not overlap."""

    online: CpuSet
    cores: Sequence[Group] = ()
    sockets: Sequence[Group] = ()
    l3: Sequence[Group] = ()
    numa: Sequence[Group] = ()
    core_types: Sequence[tuple[CoreType, CpuSet]] = ()  # where the kernel lists them; the first list with a CPU applies
    capacities: Mapping[int, int] = field(default_factory=dict)  # lowest CPU of a core -> its relative strength
    lacking: Mapping[int, str] = field(default_factory=dict)  # CPUs that the kernel does not describe, and how
    present: CpuSet = EMPTY
    isolated: CpuSet = EMPTY
    nohz_full: CpuSet = EMPTY
    arch: str = ""


def decide(readings: Readings) -> Topology:
    """The topology that these readings describe; raises TopologyError when no CPU is described completely."""
    incomplete = {cpu: readings.lacking[cpu] for cpu in readings.online if cpu in readings.lacking}
    numa = {cpu: node.id for node in readings.numa for cpu in node.cpus}
    if not numa:
        numa = dict.fromkeys(readings.online, 0)  # a kernel without NUMA: the machine is one node
    sockets = _ids(readings.sockets, fallback=lambda place, _: place)
    l3 = _ids(readings.l3, fallback=lambda _, group: group.cpus.lowest)
    types = _core_types(readings)
    cores = {cpu: core for core in readings.cores for cpu in core.cpus}
    for cpu in readings.online:
        for what, found in (("core", cores), ("socket", sockets), ("NUMA node", numa)):
            if cpu not in found:
                incomplete.setdefault(cpu, f"the kernel lists it in no {what}")
    offered = readings.online - CpuSet(incomplete)
    if not offered:
        raise TopologyError(_nothing_left(incomplete))

    cpus: list[Cpu] = []
    for cpu in offered:
        core = (cores[cpu].cpus & offered).lowest
        core_id = cores[cpu].id if cores[cpu].id >= 0 else core
        cpus.append(Cpu(cpu, core, core_id, sockets[cpu], numa[cpu], l3.get(cpu, UNKNOWN), types.get(cpu, "standard")))
    return Topology(
        cpus=tuple(cpus),
        arch=readings.arch,
        offline=readings.present - readings.online,
        isolated=readings.isolated,
        nohz_full=readings.nohz_full,
        incomplete=dict(sorted(incomplete.items())),
    )


def partition(cpus: CpuSet, read_group: Callable[[int], Group | None]) -> tuple[Group, ...]:
    """Splits CPUs into groups: `read_group` returns the group of a CPU, or None if it has none.

    A list is read once, not once per CPU that it names. The first list that names a CPU keeps it, so that the groups
    never overlap even where lists contradict each other.
    """
    groups: list[Group] = []
    left = cpus
    while left:
        cpu = left.lowest
        group = read_group(cpu)
        members = CpuSet((cpu,))
        if group is not None:
            members |= group.cpus & left
            groups.append(Group(members, group.id))
        left -= members
    return tuple(groups)


def merge_by_id(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Merges groups with the same id, for machines that report ids but no lists."""
    merged: dict[int, CpuSet] = {}
    for group in groups:
        merged[group.id] = merged.get(group.id, EMPTY) | group.cpus
    return tuple(Group(cpus, name) for name, cpus in merged.items())


def parse_list(text: str, source: str) -> CpuSet:
    """Parses the list format, "0-3,8"; an unset list is empty."""
    # Some kernels print a null pointer for nohz_full where the kernel command line does not set it.
    if text.strip() == "(null)":
        return EMPTY
    try:
        return CpuSet.parse(text)
    except CpuSetError as error:
        raise TopologyError(f"{source}: {error}") from error


def parse_mask(text: str, source: str) -> CpuSet:
    """Parses the mask format, "00000000,000000ff": hexadecimal words, the highest first."""
    try:
        return CpuSet.of_mask(int(text.strip().replace(",", "") or "0", 16))
    except ValueError as error:
        raise TopologyError(f'{source}: "{text.strip()}" is not a CPU mask of hexadecimal words') from error


def arch_of(cpuinfo: str) -> str:
    """The architecture, as `uname -m` prints it, from the beginning of /proc/cpuinfo; "" if it is unknown."""
    for line in cpuinfo.lower().splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "cpu architecture":
            return "armv7l" if value == "7" else "aarch64"
        if name == "cpu" and value.startswith("power"):
            return "ppc64le"  # Kubernetes has no big-endian nodes
        if name == "vendor_id" and value == "ibm/s390":
            return "s390x"
        if name == "isa" and value.startswith("rv"):
            return f"riscv{value[2:4]}"
        if name == "flags":
            return "x86_64" if "lm" in value.split() else "i686"  # lm: long mode, 64 bits
    return ""


def _ids(groups: Sequence[Group], fallback: Callable[[int, Group], int]) -> Mapping[int, int]:
    """CPU -> the id of its group: the kernel's id if these are distinct, else the fallback for all groups.

    The two are not mixed, because a fallback id could be the kernel's id of another group.
    """
    ids = [group.id for group in groups]
    if min(ids, default=0) < 0 or len(set(ids)) < len(ids):
        ids = [fallback(place, group) for place, group in enumerate(groups)]
    return {cpu: number for number, group in zip(ids, groups, strict=True) for cpu in group.cpus}


def _core_types(readings: Readings) -> Mapping[int, CoreType]:
    """CPU -> type of its core; absent CPUs are standard."""
    types: dict[int, CoreType] = {}
    for name, cpus in readings.core_types:
        for cpu in cpus:
            types.setdefault(cpu, name)
    if types or not readings.capacities:
        return types
    strongest = max(readings.capacities.values())
    weak = {core for core, capacity in readings.capacities.items() if capacity < E_CORE_SHARE * strongest}
    if not weak:
        return {}
    for core in readings.cores:
        for cpu in core.cpus:
            types[cpu] = "e-core" if core.cpus.lowest in weak else "p-core"
    return types


def _nothing_left(incomplete: Mapping[int, str]) -> str:
    if not incomplete:
        return "the kernel reports no online CPU: is the mounted /sys the host's?"
    cpu = min(incomplete)
    return f"none of the {len(incomplete)} online CPUs is described completely; CPU {cpu}: {incomplete[cpu]}"

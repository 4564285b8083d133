"""The groupings of the grouped mode: one record for each way to split the machine into devices.

Everything that depends on `groupBy` stands in its record, so that a new grouping is one more record, and mypy names
every place that has forgotten it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from dracpu_agent.allocation.distributed import Level
from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api import names
from dracpu_api.cpuset import EMPTY, CpuSet, union
from dracpu_api.device_names import group_device, parse_device
from dracpu_api.settings import GroupBy, Mode, Settings

_WHOLE_MACHINE: Final = 0  # the number of the only group


@dataclass(frozen=True, slots=True)
class Grouping:
    """One way to split the machine."""

    group_by: GroupBy
    groups: Callable[[Topology], Mapping[int, CpuSet]]  # a group's number -> its online CPUs
    number_of: Callable[[Cpu], int]  # the number of the group that a CPU belongs to
    attributes: Callable[[Sequence[Cpu]], Mapping[str, int]]  # of the device, from the CPUs of its group
    divided_over: Level  # what the strategy `distributed` divides a request over, inside one device

    def devices(self, topology: Topology) -> Mapping[str, CpuSet]:
        """Each device's name with its online CPUs."""
        return {group_device(self.group_by, number): cpus for number, cpus in self.groups(topology).items()}

    def represents(self, device: str) -> bool:
        """True when this grouping gives its devices such names, whether or not this machine has the group."""
        parsed = parse_device(device)
        return parsed is not None and parsed.group_by is self.group_by

    def resolve(self, topology: Topology, device: str) -> CpuSet | None:
        """The CPUs of a device, offline ones as far as they are known; None when this machine has no such group."""
        online = self.devices(topology).get(device, CpuSet())
        offline = CpuSet(cpu.id for cpu in topology.gone if group_device(self.group_by, self.number_of(cpu)) == device)
        return online | offline or None


def grouping(group_by: GroupBy) -> Grouping:
    """The record of a grouping."""
    match group_by:
        case GroupBy.NUMA_NODE:
            return _NUMA_NODES
        case GroupBy.SOCKET:
            return _SOCKETS
        case GroupBy.MACHINE:
            return _MACHINE
        case GroupBy.L3_CACHE:
            return _L3_CACHES
        case _:
            assert_never(group_by)


def grouping_of(device: str) -> Grouping | None:
    """The grouping that a device's name belongs to, whatever the settings are; None for an individual device."""
    parsed = parse_device(device)
    return None if parsed is None or parsed.group_by is None else grouping(parsed.group_by)


def divided_over(device: str) -> Level:
    """The groups over which `distributed` divides a request for this device; individual devices have none to divide."""
    found = grouping_of(device)
    return Level.UNCORES if found is None else found.divided_over


def ungrouped(topology: Topology, settings: Settings) -> CpuSet:
    """Online CPUs that belong to no group under these settings, so that no device offers them."""
    if settings.mode is not Mode.GROUPED:
        return EMPTY
    return topology.online - union(grouping(settings.group_by).groups(topology).values())


def _socket(cpus: Sequence[Cpu]) -> Mapping[str, int]:
    return {names.ATTRIBUTE_SOCKET: cpus[0].socket}


def _numa_node(cpus: Sequence[Cpu]) -> Mapping[str, int]:
    return dict.fromkeys((names.ATTRIBUTE_NUMA_NODE, *names.ATTRIBUTES_NUMA_LEGACY), cpus[0].numa)


def _l3_cache(cpus: Sequence[Cpu]) -> Mapping[str, int]:
    """A cache may serve several NUMA nodes (sub-NUMA clustering): then its device names none."""
    attributes = {names.ATTRIBUTE_L3: cpus[0].l3}
    if len({cpu.socket for cpu in cpus}) == 1:
        attributes |= _socket(cpus)
    if len({cpu.numa for cpu in cpus}) == 1:
        attributes |= _numa_node(cpus)
    return attributes


_NUMA_NODES: Final = Grouping(
    group_by=GroupBy.NUMA_NODE,
    groups=lambda topology: topology.numa_nodes,
    number_of=lambda cpu: cpu.numa,
    attributes=lambda cpus: {**_socket(cpus), **_numa_node(cpus)},
    divided_over=Level.UNCORES,  # one level below the NUMA node that the device is
)

_SOCKETS: Final = Grouping(
    group_by=GroupBy.SOCKET,
    groups=lambda topology: topology.sockets,
    number_of=lambda cpu: cpu.socket,
    attributes=_socket,
    divided_over=Level.NUMA_NODES,
)

_MACHINE: Final = Grouping(
    group_by=GroupBy.MACHINE,
    groups=lambda topology: {_WHOLE_MACHINE: topology.online},
    number_of=lambda _: _WHOLE_MACHINE,
    attributes=lambda _: {},
    divided_over=Level.NUMA_NODES,
)

_L3_CACHES: Final = Grouping(
    group_by=GroupBy.L3_CACHE,
    groups=lambda topology: topology.l3_groups,
    number_of=lambda cpu: cpu.l3,
    attributes=_l3_cache,
    divided_over=Level.UNCORES,  # there is nothing below the cache: a request lies in one group
)

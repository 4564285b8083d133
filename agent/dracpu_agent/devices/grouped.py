"""Grouped mode: one device for each NUMA node, each socket or the machine, shared by claims that take some of its CPUs.

The scheduler subtracts the shares of a device by itself, so a group offers its CPUs less what is held through *other*
devices: those the scheduler cannot see.
"""

from collections.abc import Callable, Iterable, Mapping

from dracpu_agent.devices.model import AttributeValue, Capacity, Device, RequestPolicy
from dracpu_agent.devices.offer import Offer
from dracpu_agent.topology.model import Topology
from dracpu_api import names
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import GroupBy

Group = tuple[str, CpuSet]  # device name, all CPUs of the group on the machine


def publish(topology: Topology, offer: Offer) -> tuple[Device, ...]:
    """The devices to offer; a group with nothing left to offer is absent."""
    devices = (_device(topology, offer, name, cpus) for name, cpus in _groups(topology, offer.settings.group_by))
    return tuple(device for device in devices if device is not None)


def resolve(topology: Topology, device: str) -> CpuSet | None:
    """The CPUs that a device's name stands for under any grouping; None when no group of this machine is called so."""
    for group_by in GroupBy:
        for name, cpus in _groups(topology, group_by):
            if name == device:
                return cpus
    return None


def grouping_of(topology: Topology, device: str) -> GroupBy | None:
    """The grouping under which a group is called so."""
    return next((group_by for group_by in GroupBy if represents(topology, group_by, device)), None)


def represents(topology: Topology, group_by: GroupBy, device: str) -> bool:
    """True when a group is called so under this grouping."""
    return any(name == device for name, _ in _groups(topology, group_by))


def _groups(topology: Topology, group_by: GroupBy) -> Iterable[Group]:
    named: Callable[[int], str]
    match group_by:
        case GroupBy.MACHINE:
            return [(names.DEVICE_MACHINE, topology.online)]
        case GroupBy.SOCKET:
            groups, named = topology.sockets, names.device_of_socket
        case GroupBy.NUMA_NODE:
            groups, named = topology.numa_nodes, names.device_of_numa_node
    return [(named(number), cpus) for number, cpus in groups.items()]


def _device(topology: Topology, offer: Offer, name: str, group: CpuSet) -> Device | None:
    allocatable = group - offer.reserved
    offered = allocatable - offer.held_by_others(name)
    unit, value = 1, len(offered)
    if offer.settings.allocation.full_cores:
        unit, value = _whole_cores(topology, group, offered, offer.held_through(name))
    if value == 0:
        return None
    return Device(
        name=name,
        cpus=allocatable,
        attributes=_attributes(topology, offer.settings.group_by, group, allocatable),
        capacity=Capacity(names.CAPACITY_CPU, value, _policy(value, unit)),
        taints=offer.taints,
    )


def _whole_cores(topology: Topology, group: CpuSet, offered: CpuSet, own: CpuSet) -> tuple[int, int]:
    """The threads of a core, and how many CPUs of the group whole free cores and the device's own shares make up."""
    cores = [threads for threads in topology.cores.values() if not threads.isdisjoint(group)]
    unit = max(len(threads) for threads in cores)
    free = sum(len(threads) for threads in cores if threads <= offered - own)
    return unit, len(own & offered) + free // unit * unit


def _policy(value: int, unit: int) -> RequestPolicy:
    # API server: min + step must not exceed the value, so that a device of one unit cannot have a range
    if value < 2 * unit:
        return RequestPolicy(default=unit, valid_values=(unit,))
    return RequestPolicy(default=unit, minimum=unit, step=unit)


def _attributes(
    topology: Topology, group_by: GroupBy, group: CpuSet, allocatable: CpuSet
) -> Mapping[str, AttributeValue]:
    first = topology.by_id[group.lowest]
    attributes: dict[str, AttributeValue] = {
        names.ATTRIBUTE_NUM_CPUS: len(allocatable),
        names.ATTRIBUTE_SMT: topology.smt,
    }
    if group_by is not GroupBy.MACHINE:
        attributes[names.ATTRIBUTE_SOCKET] = first.socket
    if group_by is GroupBy.NUMA_NODE:
        for name in (names.ATTRIBUTE_NUMA_NODE, *names.ATTRIBUTES_NUMA_LEGACY):
            attributes[name] = first.numa
    return attributes

"""Grouped mode: one device for each NUMA node, each socket or the machine, shared by claims that take some of its CPUs.

The scheduler subtracts the shares of a device by itself, so a group offers its CPUs less what is held through *other*
devices: those the scheduler cannot see. CPUs that are offline are not offered; where a share has some of them, the
group offers that much less until the share ends.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from dracpu_agent.devices.attributes import pcie_roots
from dracpu_agent.devices.device import OFFLINE, PARTLY_OFFLINE, AttributeValue, Capacity, Device, RequestPolicy
from dracpu_agent.devices.offer import Offer
from dracpu_agent.devices.whole_cores import kinds_of, offered_in_whole_cores
from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api import names
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import GroupBy

_NAMES: Final = {
    GroupBy.NUMA_NODE: re.compile(r"cpudevnuma\d{3,}"),
    GroupBy.SOCKET: re.compile(r"cpudevsocket\d{3,}"),
    GroupBy.MACHINE: re.compile(names.DEVICE_MACHINE),
}


def publish(topology: Topology, offer: Offer) -> tuple[Device, ...]:
    """The devices to offer. A group with nothing left to offer is absent, unless shares of it wait for its CPUs."""
    groups = _groups(topology, offer.settings.group_by)
    gone = [name for name in offer.held if name not in groups and represents(offer.settings.group_by, name)]
    devices = [_device(topology, offer, name, cpus) for name, cpus in groups.items()]
    devices += [_offline_device(topology, offer, name) for name in gone]
    return tuple(device for device in devices if device is not None)


def resolve(topology: Topology, device: str) -> CpuSet | None:
    """The CPUs that a device's name stands for under any grouping, offline ones as far as they are known; None when no
    group of this machine is called so."""
    group_by = grouping_of(device)
    if group_by is None:
        return None
    online = _groups(topology, group_by).get(device, EMPTY)
    return online | CpuSet(cpu.id for cpu in topology.gone if _group_of(cpu, group_by) == device) or None


def grouping_of(device: str) -> GroupBy | None:
    """The grouping under which a group is called so."""
    return next((group_by for group_by in GroupBy if represents(group_by, device)), None)


def represents(group_by: GroupBy, device: str) -> bool:
    """True when groups are called so under this grouping."""
    return _NAMES[group_by].fullmatch(device) is not None


def _groups(topology: Topology, group_by: GroupBy) -> Mapping[str, CpuSet]:
    """Device -> its online CPUs."""
    named: Callable[[int], str]
    match group_by:
        case GroupBy.MACHINE:
            return {names.DEVICE_MACHINE: topology.online}
        case GroupBy.SOCKET:
            groups, named = topology.sockets, names.device_of_socket
        case GroupBy.NUMA_NODE:
            groups, named = topology.numa_nodes, names.device_of_numa_node
    return {named(number): cpus for number, cpus in groups.items()}


def _group_of(cpu: Cpu, group_by: GroupBy) -> str:
    match group_by:
        case GroupBy.MACHINE:
            return names.DEVICE_MACHINE
        case GroupBy.SOCKET:
            return names.device_of_socket(cpu.socket)
        case GroupBy.NUMA_NODE:
            return names.device_of_numa_node(cpu.numa)


def _device(topology: Topology, offer: Offer, name: str, group: CpuSet) -> Device | None:
    allocatable = group - offer.reserved
    offered = allocatable - offer.held_by_others(name)
    own = offer.held_through(name)
    unit, value = 1, len(offered)
    if offer.settings.allocation.full_cores:
        kinds = kinds_of(topology, allocatable)
        unit, value = kinds[-1], offered_in_whole_cores(topology, offered, own, kinds)
    if value == 0:
        return _offline_device(topology, offer, name)
    return Device(
        name=name,
        cpus=allocatable,
        attributes=_attributes(topology, offer, topology.by_id[group.lowest], allocatable),
        capacity=Capacity(names.CAPACITY_CPU, value, _policy(value, unit)),
        taints=offer.taints if own <= topology.online else (*offer.taints, PARTLY_OFFLINE),
    )


def _offline_device(topology: Topology, offer: Offer, name: str) -> Device | None:
    """A group whose shares have no CPU left that is online: closed, but there as long as somebody waits for it."""
    own = offer.held_through(name)
    if not own or not own.isdisjoint(topology.online):
        return None
    return Device(
        name=name,
        cpus=EMPTY,
        attributes=_attributes(topology, offer, topology.known.get(own.lowest), EMPTY),
        capacity=Capacity(names.CAPACITY_CPU, len(own), _policy(len(own), 1)),
        taints=(*offer.taints, OFFLINE),
    )


def _policy(value: int, unit: int) -> RequestPolicy:
    unit = min(unit, value)  # API server: so must every valid value; what is offered then is part of a share
    # API server: min + step must not exceed the value, so that a device of one unit cannot have a range
    if value < 2 * unit:
        return RequestPolicy(default=unit, valid_values=(unit,))
    return RequestPolicy(default=unit, minimum=unit, step=unit)


def _attributes(topology: Topology, offer: Offer, member: Cpu | None, allocatable: CpuSet) -> dict[str, AttributeValue]:
    """`member`: any CPU of the group; None when all of them were offline already when the agent started."""
    group_by = offer.settings.group_by
    attributes: dict[str, AttributeValue] = {
        names.ATTRIBUTE_NUM_CPUS: len(allocatable),
        names.ATTRIBUTE_SMT: topology.smt,
    }
    if group_by is not GroupBy.MACHINE and member is not None:
        attributes[names.ATTRIBUTE_SOCKET] = member.socket
    if group_by is GroupBy.NUMA_NODE and member is not None:
        for name in (names.ATTRIBUTE_NUMA_NODE, *names.ATTRIBUTES_NUMA_LEGACY):
            attributes[name] = member.numa
    return attributes | pcie_roots(topology, offer.settings, allocatable, len(attributes))

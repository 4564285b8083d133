"""Grouped mode: one device for each NUMA node, each socket or the machine, shared by claims that take some of its CPUs.

The scheduler subtracts the shares of a device by itself, so a group offers its CPUs less what is held through *other*
devices: those the scheduler cannot see. CPUs that are offline are not offered; where a share has some of them, the
group offers that much less until the share ends.
"""

from dracpu_agent.devices.attributes import pcie_roots
from dracpu_agent.devices.device import OFFLINE, PARTLY_OFFLINE, AttributeValue, Capacity, Device, RequestPolicy
from dracpu_agent.devices.grouping import grouping, grouping_of
from dracpu_agent.devices.offer import Offer
from dracpu_agent.devices.whole_cores import kinds_of, offered_in_whole_cores
from dracpu_agent.topology.topology import Topology
from dracpu_api import names
from dracpu_api.cpuset import EMPTY, CpuSet


def publish(topology: Topology, offer: Offer) -> tuple[Device, ...]:
    """The devices to offer. A group with nothing left to offer is absent, unless shares of it wait for its CPUs."""
    split = grouping(offer.settings.group_by)
    groups = split.devices(topology)
    gone = [name for name in offer.held if name not in groups and split.represents(name)]
    devices = [_device(topology, offer, name, cpus) for name, cpus in groups.items()]
    devices += [_offline_device(topology, offer, name) for name in gone]
    return tuple(device for device in devices if device is not None)


def resolve(topology: Topology, device: str) -> CpuSet | None:
    """The CPUs that a device's name stands for under any grouping, offline ones as far as they are known; None when the
    machine has no such group."""
    split = grouping_of(device)
    return None if split is None else split.resolve(topology, device)


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
        attributes=_attributes(topology, offer, group, allocatable),
        capacity=Capacity(names.CAPACITY_CPU, value, _policy(value, unit)),
        beside=offer.beside.get(name, ()),
        taints=offer.taints if own <= topology.online else (*offer.taints, PARTLY_OFFLINE),
    )


def _offline_device(topology: Topology, offer: Offer, name: str) -> Device | None:
    """A group without a CPU that is online: closed to new claims, and published while a claim holds a share of it."""
    own = offer.held_through(name)
    if not own or not own.isdisjoint(topology.online):
        return None
    return Device(
        name=name,
        cpus=EMPTY,
        attributes=_attributes(topology, offer, own, EMPTY),
        capacity=Capacity(names.CAPACITY_CPU, len(own), _policy(len(own), 1)),
        taints=(*offer.taints, OFFLINE),
    )


def _policy(value: int, unit: int) -> RequestPolicy:
    unit = min(unit, value)  # API server: a valid value must not exceed the capacity
    # API server: min + step must not exceed the value, so that a device of one unit cannot have a range
    if value < 2 * unit:
        return RequestPolicy(default=unit, valid_values=(unit,))
    return RequestPolicy(default=unit, minimum=unit, step=unit)


def _attributes(topology: Topology, offer: Offer, group: CpuSet, allocatable: CpuSet) -> dict[str, AttributeValue]:
    # CPUs that were offline already when the agent started are not known: then the group's place is not known either
    members = [topology.known[cpu] for cpu in group if cpu in topology.known]
    attributes: dict[str, AttributeValue] = {
        names.ATTRIBUTE_NUM_CPUS: len(allocatable),
        names.ATTRIBUTE_SMT: topology.smt,
    }
    if members:
        attributes |= grouping(offer.settings.group_by).attributes(members)
    return attributes | pcie_roots(topology, offer.settings, allocatable, len(attributes))

"""Individual mode: one device for each CPU, given to one claim at a time."""

from dracpu_agent.devices.attributes import pcie_roots
from dracpu_agent.devices.device import OFFLINE, AttributeValue, Device
from dracpu_agent.devices.offer import Offer
from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api import names
from dracpu_api.cpuset import CpuSet
from dracpu_api.device_names import cpu_device, parse_device


def publish(topology: Topology, offer: Offer) -> tuple[Device, ...]:
    """The devices to offer, core by core, so that a scheduler that takes them in this order hands out whole cores.

    A CPU that is offline is not offered. While a claim holds it the device stays, closed to other claims.
    """
    in_listed_order = sorted(topology.cpus, key=lambda cpu: (cpu.core, cpu.id))
    offered = [
        _device(topology, offer, cpu)
        for cpu in in_listed_order
        if cpu.id not in offer.reserved and cpu.id not in offer.held_by_others(cpu_device(cpu.id))
    ]
    offline = [
        _offline_device(topology, offer, cpu)
        for cpu in offer.all_held - topology.online - offer.reserved
        if cpu in offer.held_through(cpu_device(cpu))
    ]
    return (*offered, *offline)


def resolve(topology: Topology, device: str) -> CpuSet | None:
    """The CPU that a device's name stands for, even an offline one; None when this machine has no such CPU."""
    parsed = parse_device(device)
    if parsed is None or parsed.group_by is not None or parsed.number not in topology.present:
        return None
    return CpuSet([parsed.number])


def _offline_device(topology: Topology, offer: Offer, cpu: int) -> Device:
    known = topology.known.get(cpu)
    attributes: dict[str, AttributeValue] = {names.ATTRIBUTE_CPU: cpu}
    if known is not None:
        attributes = _attributes(topology, offer, known)
    return Device(cpu_device(cpu), CpuSet([cpu]), attributes, taints=(*offer.taints, OFFLINE))


def _device(topology: Topology, offer: Offer, cpu: Cpu) -> Device:
    attributes = _attributes(topology, offer, cpu)
    return Device(cpu_device(cpu.id), CpuSet([cpu.id]), attributes, taints=offer.taints)


def _attributes(topology: Topology, offer: Offer, cpu: Cpu) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        names.ATTRIBUTE_CPU: cpu.id,
        names.ATTRIBUTE_CORE: cpu.core_id,
        names.ATTRIBUTE_SOCKET: cpu.socket,
        names.ATTRIBUTE_CORE_TYPE: cpu.type,
        names.ATTRIBUTE_SMT: topology.smt,
    }
    for name in (names.ATTRIBUTE_NUMA_NODE, *names.ATTRIBUTES_NUMA_LEGACY):
        attributes[name] = cpu.numa
    if cpu.l3 >= 0:
        attributes[names.ATTRIBUTE_L3] = cpu.l3
    return attributes | pcie_roots(topology, offer.settings, CpuSet([cpu.id]), len(attributes))

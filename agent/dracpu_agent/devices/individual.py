"""Individual mode: one device for each CPU, given to one claim at a time."""

import re
from typing import Final

from dracpu_agent.devices.attributes import pcie_roots
from dracpu_agent.devices.device import OFFLINE, AttributeValue, Device
from dracpu_agent.devices.offer import Offer
from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api import names
from dracpu_api.cpuset import CpuSet

_NAME: Final = re.compile(r"cpudev(\d{3,4})")


def publish(topology: Topology, offer: Offer) -> tuple[Device, ...]:
    """The devices to offer, core by core, so that a scheduler that takes them in this order hands out whole cores.

    A CPU that is offline is not offered. While a claim holds it the device stays, closed to other claims.
    """
    in_listed_order = sorted(topology.cpus, key=lambda cpu: (cpu.core, cpu.id))
    offered = [
        _device(topology, offer, cpu)
        for cpu in in_listed_order
        if cpu.id not in offer.reserved and cpu.id not in offer.held_by_others(names.device_of_cpu(cpu.id))
    ]
    offline = [
        _offline_device(topology, offer, cpu)
        for cpu in offer.all_held - topology.online - offer.reserved
        if cpu in offer.held_through(names.device_of_cpu(cpu))
    ]
    return (*offered, *offline)


def resolve(topology: Topology, device: str) -> CpuSet | None:
    """The CPU that a device's name stands for, even an offline one; None when this machine has no such CPU."""
    cpu = _cpu_of(device)
    return CpuSet([cpu]) if cpu is not None and cpu in topology.present else None


def represents(device: str) -> bool:
    """True when devices of this mode have such names."""
    return _cpu_of(device) is not None


def _cpu_of(device: str) -> int | None:
    match = _NAME.fullmatch(device)
    return int(match[1]) if match is not None and names.device_of_cpu(int(match[1])) == device else None


def _offline_device(topology: Topology, offer: Offer, cpu: int) -> Device:
    known = topology.known.get(cpu)
    attributes: dict[str, AttributeValue] = {names.ATTRIBUTE_CPU: cpu}
    if known is not None:
        attributes = _attributes(topology, offer, known)
    return Device(names.device_of_cpu(cpu), CpuSet([cpu]), attributes, taints=(*offer.taints, OFFLINE))


def _device(topology: Topology, offer: Offer, cpu: Cpu) -> Device:
    attributes = _attributes(topology, offer, cpu)
    return Device(names.device_of_cpu(cpu.id), CpuSet([cpu.id]), attributes, taints=offer.taints)


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

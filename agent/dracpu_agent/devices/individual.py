"""Individual mode: one device for each CPU, given to one claim at a time."""

import re
from typing import Final

from dracpu_agent.devices.model import AttributeValue, Device
from dracpu_agent.devices.offer import Offer
from dracpu_agent.topology.model import Cpu, Topology
from dracpu_api import names
from dracpu_api.cpuset import CpuSet

_NAME: Final = re.compile(r"cpudev(\d{3,4})")


def publish(topology: Topology, offer: Offer) -> tuple[Device, ...]:
    """The devices to offer, core by core, so that a scheduler that takes them in this order hands out whole cores."""
    in_listed_order = sorted(topology.cpus, key=lambda cpu: (cpu.core, cpu.id))
    return tuple(
        _device(topology, offer, cpu)
        for cpu in in_listed_order
        if cpu.id not in offer.reserved and cpu.id not in offer.held_by_others(names.device_of_cpu(cpu.id))
    )


def resolve(topology: Topology, device: str) -> CpuSet | None:
    """The CPU that a device's name stands for; None when no CPU of this machine is called so."""
    match = _NAME.fullmatch(device)
    if match is None:
        return None
    cpu = int(match[1])
    return CpuSet([cpu]) if cpu in topology.online and names.device_of_cpu(cpu) == device else None


def _device(topology: Topology, offer: Offer, cpu: Cpu) -> Device:
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
    return Device(name=names.device_of_cpu(cpu.id), cpus=CpuSet([cpu.id]), attributes=attributes, taints=offer.taints)

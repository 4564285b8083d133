"""The room's front door: what a node offers under its settings, and what a device's name stands for."""

from dracpu_agent.devices import grouped, individual
from dracpu_agent.devices.device import Device
from dracpu_agent.devices.offer import Offer
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Mode


def publish(topology: Topology, offer: Offer) -> tuple[Device, ...]:
    """Every device to offer, in the order in which the scheduler should consider them."""
    match offer.settings.mode:
        case Mode.GROUPED:
            return grouped.publish(topology, offer)
        case Mode.INDIVIDUAL:
            return individual.publish(topology, offer)


def resolve(topology: Topology, device: str) -> CpuSet | None:
    """The CPUs behind a device's name in any mode: a claim may name a device of the former representation."""
    cpus = grouped.resolve(topology, device)
    return individual.resolve(topology, device) if cpus is None else cpus

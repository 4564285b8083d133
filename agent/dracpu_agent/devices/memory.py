"""Memory as devices: one for each kind on each NUMA node, shared by claims that take some bytes of it. Or as capacities
of the devices of CPUs that are one NUMA node each, so that one request takes CPUs and memory of one NUMA node.
"""

from collections.abc import Mapping
from typing import Final

from dracpu_agent.devices.device import AttributeValue, Capacity, Device, RequestPolicy, Taint
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.kinds import Place
from dracpu_agent.memory.room import SMALLEST
from dracpu_agent.topology.topology import Topology
from dracpu_api import names
from dracpu_api.cpuset import EMPTY
from dracpu_api.device_names import group_device
from dracpu_api.quantity import format_binary
from dracpu_api.settings import GroupBy

_TIER_OF_DRAM: Final = 4  # Linux: memory that is faster is in lower tiers


def publish_memory(
    inventory: Inventory, topology: Topology, capacities: Mapping[Place, int], taints: tuple[Taint, ...]
) -> tuple[Device, ...]:
    """One device for each place that has a capacity."""
    return tuple(
        Device(
            name=place.device,
            cpus=EMPTY,
            attributes=_attributes(inventory, topology, place),
            capacity=Capacity(names.CAPACITY_SIZE, size, _policy(place, size, inventory.base_page), binary=True),
            taints=taints,
        )
        for place, size in sorted(capacities.items())
        if size > 0
    )


def capacities_beside_cpus(offered: Mapping[Place, int], base_page: int) -> Mapping[str, tuple[Capacity, ...]]:
    """The capacities of each device of CPUs by its name. A kind with less than one step is left out."""
    found: dict[str, tuple[Capacity, ...]] = {}
    for place, size in sorted(offered.items()):
        name = names.CAPACITIES_BESIDE_CPUS.get(place.kind.name)
        # a step of one page would allow limits that end the runtime's own first process
        step = place.kind.page or max(SMALLEST, base_page)
        if name is not None and size >= step:  # API server: min + step must not exceed the value
            device = group_device(GroupBy.NUMA_NODE, place.numa)
            capacity = Capacity(name, size, RequestPolicy(default=0, minimum=0, step=step), binary=True)
            found[device] = (*found.get(device, ()), capacity)
    return found


def _policy(place: Place, size: int, base_page: int) -> RequestPolicy:
    step, least = (place.kind.page, place.kind.page) if place.kind.is_huge else (base_page, SMALLEST)
    # API server: min + step must not exceed the value, so that a device of one page cannot have a range
    if least + step > size:
        return RequestPolicy(default=size, valid_values=(size,))
    return RequestPolicy(default=least, minimum=least, step=step)


def _attributes(inventory: Inventory, topology: Topology, place: Place) -> Mapping[str, AttributeValue]:
    node = inventory.by_numa.get(place.numa)
    attributes: dict[str, AttributeValue] = {
        names.ATTRIBUTE_NUMA_NODE: place.numa,
        names.ATTRIBUTE_PAGE_SIZE: format_binary(place.kind.page or inventory.base_page),
        names.ATTRIBUTE_HUGE_TLB: place.kind.is_huge,
        **dict.fromkeys(names.ATTRIBUTES_NUMA_LEGACY, place.numa),
        names.ATTRIBUTE_CPULESS: node is not None and not node.cpus,
    }
    cpus = topology.numa_nodes.get(place.numa, EMPTY)
    if cpus:
        attributes[names.ATTRIBUTE_SOCKET] = topology.by_id[cpus.lowest].socket
    if node is not None and node.tier is not None:
        attributes[names.ATTRIBUTE_TIER] = _tier(node.tier)
    return attributes


def _tier(number: int) -> str:
    if number == _TIER_OF_DRAM:
        return "DRAM"
    return "HBM" if number < _TIER_OF_DRAM else "CXL"

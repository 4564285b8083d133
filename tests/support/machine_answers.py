"""Computes the Topology that must be read for a machine from its description, without any file."""

from typing import Final

from dracpu_agent.topology.topology import CoreType, Cpu, Topology
from dracpu_sandbox.machines.description import Machine, Place, Quirk

NOT_DESCRIBED: Final = (
    "sysfs has no topology/core_cpus_list, topology/package_cpus_list, topology/physical_package_id, topology/core_id"
)


def topology_of(machine: Machine) -> Topology:
    """Returns the expected topology: every CPU that can be offered, and what is wrong with the others."""
    offered = [place for place in machine.places if place.cpu in machine.online - machine.undescribed]
    lowest_of_core: dict[int, int] = {}
    lowest_of_l3: dict[int, int] = {}
    for place in offered:
        lowest_of_core.setdefault(place.core, place.cpu)
        lowest_of_l3.setdefault(place.l3, place.cpu)
    in_order = list(dict.fromkeys(place.socket for place in offered))
    socket_ids = [machine.socket_id(socket) for socket in in_order]
    l3_ids = list({place.l3: machine.l3_id(place) for place in offered if place.l3 >= 0}.values())

    def socket(place: Place) -> int:
        if Quirk.NO_PACKAGES in machine.quirks or {Quirk.PACKAGE_UNKNOWN, Quirk.NO_PACKAGE_LISTS} <= machine.quirks:
            return 0
        return machine.socket_id(place.socket) if _are_distinct(socket_ids) else in_order.index(place.socket)

    def l3(place: Place) -> int:
        if place.l3 < 0:
            return -1
        return machine.l3_id(place) if _are_distinct(l3_ids) else lowest_of_l3[place.l3]

    def core_id(place: Place) -> int:
        return lowest_of_core[place.core] if Quirk.NO_CORE_ID in machine.quirks else place.core_id

    def core_type(place: Place) -> CoreType:
        only_by_strength = Quirk.CAPACITY in machine.quirks and len({other.type for other in offered}) == 1
        return "standard" if only_by_strength else place.type

    return Topology(
        cpus=tuple(
            Cpu(
                id=place.cpu,
                core=lowest_of_core[place.core],
                core_id=core_id(place),
                socket=socket(place),
                numa=0 if Quirk.NO_NUMA in machine.quirks else machine.numa_id(place.numa),
                l3=l3(place),
                type=core_type(place),
            )
            for place in offered
        ),
        arch=machine.arch,
        offline=machine.offline,
        isolated=machine.isolated,
        nohz_full=machine.nohz_full,
        incomplete=dict.fromkeys(machine.undescribed, NOT_DESCRIBED),
        pcie_roots={
            root: cpus for root, numa in machine.pcie if (cpus := machine.close_to(numa) - machine.undescribed)
        },
    )


def _are_distinct(ids: list[int]) -> bool:
    return all(number >= 0 for number in ids) and len(set(ids)) == len(ids)

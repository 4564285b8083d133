"""A machine read again after CPUs came or went: what was known of it stays true.

sysfs says nothing of a CPU that is offline, so what it was is remembered. Sockets and L3 caches without usable ids are
named by what is online (readings.py); they keep the names that they had, for devices are named after sockets.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from dracpu_agent.topology.topology import CoreType, Cpu, Topology
from dracpu_api.cpuset import CpuSet


def changed(former: Topology, found: Topology) -> Topology:
    """`found` with what `former` knew."""
    sockets = _names(former, found.sockets, lambda cpu: cpu.socket)
    l3_groups = _names(former, found.l3_groups, lambda cpu: cpu.l3)
    return replace(
        found,
        cpus=tuple(
            replace(cpu, socket=sockets[cpu.socket], l3=l3_groups.get(cpu.l3, cpu.l3), type=_type(former, cpu))
            for cpu in found.cpus
        ),
        gone=tuple(cpu for number, cpu in sorted(former.known.items()) if number not in found.online),
    )


def _names(former: Topology, groups: Mapping[int, CpuSet], name_of: Callable[[Cpu], int]) -> Mapping[int, int]:
    """The name that was found for a group -> its name: the former one, where a CPU of the group was known."""
    names: dict[int, int] = {}
    for found, cpus in groups.items():
        known = (name_of(former.known[cpu]) for cpu in cpus if cpu in former.known)
        names[found] = next((name for name in known if name >= 0), -1)
    taken = {name_of(cpu) for cpu in former.known.values()}
    for found, name in names.items():
        if name < 0:
            names[found] = found if found not in taken else max(taken) + 1
            taken.add(names[found])
    # Two groups under one name: the machine was misread before, or is another one now.
    return names if len(set(names.values())) == len(names) else {found: found for found in groups}


def _type(former: Topology, cpu: Cpu) -> CoreType:
    """Where only strength tells types apart, the weak cores look like all others once the strong ones are offline."""
    known = former.known.get(cpu.id)
    return known.type if known is not None and cpu.type == "standard" else cpu.type

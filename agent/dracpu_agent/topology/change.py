"""Carries over what was known of a machine when CPUs have come or gone.

sysfs describes online CPUs only, so the last description of an offline CPU is kept. Sockets and L3 caches without
usable ids are numbered by their online CPUs (readings.py). They keep their numbers here, because devices are named
after them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from dracpu_agent.topology.topology import CoreType, Cpu, Topology
from dracpu_api.cpuset import CpuSet


def changed(former: Topology, found: Topology) -> Topology:
    """The topology that was just read, `found`, completed with what is known from the `former` one."""
    sockets = _numbers(former, found.sockets, lambda cpu: cpu.socket)
    l3_groups = _numbers(former, found.l3_groups, lambda cpu: cpu.l3)
    return replace(
        found,
        cpus=tuple(
            replace(cpu, socket=sockets[cpu.socket], l3=l3_groups.get(cpu.l3, cpu.l3), type=_type(former, cpu))
            for cpu in found.cpus
        ),
        gone=tuple(cpu for cpu_id, cpu in sorted(former.known.items()) if cpu_id not in found.online),
    )


def _numbers(former: Topology, groups: Mapping[int, CpuSet], number_of: Callable[[Cpu], int]) -> Mapping[int, int]:
    """The number found for a group -> the number to use: the former one if a CPU of the group was known."""
    numbers: dict[int, int] = {}
    for found, cpus in groups.items():
        known = (number_of(former.known[cpu]) for cpu in cpus if cpu in former.known)
        numbers[found] = next((number for number in known if number >= 0), -1)
    taken = {number_of(cpu) for cpu in former.known.values()}
    for found, number in numbers.items():
        if number < 0:
            numbers[found] = found if found not in taken else max(taken) + 1
            taken.add(numbers[found])
    # Two groups with one number: the former reading was wrong, or this is another machine.
    return numbers if len(set(numbers.values())) == len(numbers) else {found: found for found in groups}


def _type(former: Topology, cpu: Cpu) -> CoreType:
    """Keeps a known type: types told apart by capacity alone all look standard once the strong cores are offline."""
    known = former.known.get(cpu.id)
    return known.type if known is not None and cpu.type == "standard" else cpu.type

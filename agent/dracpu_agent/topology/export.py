"""Writes and reads the JSON of `dracpu-agent topology -o json`: one object per CPU, for `plan` and other programs.

    [{"cpu": 0, "core": 0, "socket": 0, "numa": 0, "l3": 0, "type": "standard", "siblings": "0,64"}, ...]

`core` is the lowest CPU of the physical core, unique on the machine. `siblings` are all online threads of that core,
including the CPU itself. `l3` is -1 where the kernel reports no L3 cache.
"""

import json
from collections.abc import Mapping
from typing import Final

from dracpu_agent.topology.topology import CORE_TYPES, CoreType, Cpu, Topology, TopologyError
from dracpu_api.cpuset import MAX_CPU

FIELDS: Final = ("cpu", "core", "socket", "numa", "l3", "type", "siblings")
MOST: Final = 2**31 - 1  # the kernel's ids are C ints


def to_json(topology: Topology) -> str:
    """The CPUs that can be offered or shared, one per line, in ascending order."""
    siblings = {core: str(threads) for core, threads in topology.cores.items()}
    lines = (
        json.dumps(
            {
                "cpu": cpu.id,
                "core": cpu.core,
                "socket": cpu.socket,
                "numa": cpu.numa,
                "l3": cpu.l3,
                "type": cpu.type,
                "siblings": siblings[cpu.core],
            }
        )
        for cpu in topology.cpus
    )
    return "[\n  " + ",\n  ".join(lines) + "\n]\n"


def from_json(text: str) -> Topology:
    """Reads the output of `to_json`. A description that contradicts itself is an error."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"not JSON: {error}") from error
    return from_items(items)


def from_items(items: object) -> Topology:
    """Reads one machine from decoded JSON."""
    if not isinstance(items, list) or not items:
        raise TopologyError("a topology is a list of CPUs as `dracpu-agent topology -o json` prints it")
    described = [_cpu(item, place) for place, item in enumerate(items)]
    topology = Topology(tuple(sorted((cpu for cpu, _ in described), key=lambda cpu: cpu.id)))
    if len(topology.by_id) < len(topology.cpus):
        raise TopologyError("a CPU is described twice")
    for cpu, siblings in described:
        threads = topology.cores[cpu.core]
        if cpu.core != threads.lowest:
            raise TopologyError(f"CPU {cpu.id}: core must be {threads.lowest}, the lowest CPU of its core {threads}")
        if siblings != str(threads):
            raise TopologyError(f'CPU {cpu.id}: siblings must be "{threads}", the CPUs of its core, got {siblings!r}')
    return topology


def cpu_of(item: Mapping[str, object], place: int) -> int:
    """The id of the CPU that an item describes."""
    cpu = number_of(item, "cpu", place)
    if cpu > MAX_CPU:
        raise TopologyError(f"item {place}: cpu {cpu} is above {MAX_CPU}, the highest that Linux supports")
    return cpu


def core_type_of(value: object, place: int) -> CoreType:
    """Checks a core type."""
    for known in CORE_TYPES:
        if value == known:
            return known
    raise TopologyError(f"item {place}: type must be one of {', '.join(CORE_TYPES)}, got {value!r}")


def number_of(item: Mapping[str, object], name: str, place: int, least: int = 0) -> int:
    """A field that holds an id, from `least` on."""
    value = item[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        raise TopologyError(f"item {place}: {name} must be a whole number from {least} to {MOST}, got {value!r}")
    return value


def _cpu(item: object, place: int) -> tuple[Cpu, object]:
    """The CPU that an item describes, and the siblings that it names."""
    if not isinstance(item, dict) or set(item) != set(FIELDS):
        raise TopologyError(f"item {place} must be an object with exactly these fields: {', '.join(FIELDS)}")
    cpu = cpu_of(item, place)
    core, socket, numa = (number_of(item, name, place) for name in ("core", "socket", "numa"))
    l3 = number_of(item, "l3", place, least=-1)
    return Cpu(cpu, core, core, socket, numa, l3, core_type_of(item["type"], place)), item["siblings"]

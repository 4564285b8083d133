"""Reads a file that describes one machine, or several by name: for `dracpu-agent plan --topology` and for tests.

One machine has the form that `dracpu-agent topology -o json` prints (export.py). Several are an object by name:

    {"lab": [{"cpu": 0, "core": 0, "socket": 0, "numa": 0, "uncore": 0, "cluster": -1, "core_type": "standard"}, ...]}

A machine in that object may have either form. The one above is the hardware's view: `core` is the hardware's number,
which repeats in other sockets and clusters; `uncore` is the L3 cache, -1 for none.
"""

import json
from collections.abc import Mapping
from typing import Final

from dracpu_agent.topology.export import core_type_of, cpu_of, from_items, number_of
from dracpu_agent.topology.topology import Cpu, Topology, TopologyError

ONLY: Final = ""  # the name of a machine that is alone in its file
_NEEDED: Final = ("cpu", "core", "socket", "numa", "uncore")
_KNOWN: Final = (*_NEEDED, "cluster", "core_type")


def machines(text: str) -> Mapping[str, Topology]:
    """Every machine in the file, by name. One error makes the whole file invalid."""
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"not JSON: {error}") from error
    if isinstance(decoded, list):
        return {ONLY: _machine(decoded)}
    if not isinstance(decoded, dict) or not decoded:
        raise TopologyError(
            "expected what `dracpu-agent topology -o json` prints, or an object of several such machines by name"
        )
    return {name: _named(name, items) for name, items in decoded.items()}


def _named(name: str, items: object) -> Topology:
    try:
        return _machine(items)
    except TopologyError as error:
        raise TopologyError(f'machine "{name}": {error}') from error


def _machine(items: object) -> Topology:
    if isinstance(items, list) and items and isinstance(items[0], dict) and "uncore" in items[0]:
        return _from_hardware_view(items)
    return from_items(items)


def _from_hardware_view(items: list[object]) -> Topology:
    described = {}
    for place, item in enumerate(items):
        if not isinstance(item, dict) or not set(_NEEDED) <= set(item) <= set(_KNOWN):
            raise TopologyError(
                f"item {place} must be an object with the fields {', '.join(_NEEDED)}; cluster and core_type are "
                "optional"
            )
        described[cpu_of(item, place)] = place, item
    if len(described) < len(items):
        raise TopologyError("a CPU is described twice")

    lowest: dict[tuple[int, int, int], int] = {}
    cpus: list[Cpu] = []
    for cpu, (place, item) in sorted(described.items()):
        fields: Mapping[str, object] = {"cluster": -1, **item}
        socket, cluster, core_id = (number_of(fields, name, place, -1) for name in ("socket", "cluster", "core"))
        numa, l3 = (number_of(fields, name, place, -1) for name in ("numa", "uncore"))
        core = lowest.setdefault((socket, cluster, core_id), cpu)
        core_type = core_type_of(item.get("core_type", "standard"), place)
        cpus.append(Cpu(cpu, core, core_id, socket, numa, l3, core_type))
    return Topology(tuple(cpus))

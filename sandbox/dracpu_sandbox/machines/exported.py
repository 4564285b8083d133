"""Makes a machine from the output of `dracpu-agent topology -o json` on a real machine.

The export has no architecture, no core ids, no offline CPUs and no memory: the machine counts as x86_64, the lowest
CPU of a core is its core id, all CPUs are online, and each NUMA node has 16 GiB without hugepages. All other facts are
those of the export.
"""

from pathlib import Path
from typing import Final

from dracpu_agent.topology.export import from_json
from dracpu_agent.topology.topology import Topology, TopologyError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.machines.description import Machine, Place, equipped
from dracpu_sandbox.machines.presets import PRESETS

_GIB_OF_NODE: Final = 16


class MachineError(SandboxError):
    """The machine does not exist, or its description is invalid."""


def find_machine(name: str) -> Machine:
    """Returns the machine that `--machine` names: a preset, or a file with an exported topology."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MachineError(
            f"{name} is neither a machine nor a file; the machines are: {', '.join(PRESETS)}; "
            "a file contains the output of `dracpu-agent topology -o json`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"{name} cannot be read: {error}") from error
    try:
        return machine_of(path.stem, from_json(text))
    except TopologyError as error:
        raise MachineError(f"{name} is not an output of `dracpu-agent topology -o json`: {error}") from error


def machine_of(name: str, topology: Topology) -> Machine:
    """Returns a machine whose files yield this topology when they are read."""
    for core, threads in topology.cores.items():
        if len({topology.by_id[cpu].l3 for cpu in threads}) > 1:
            raise TopologyError(f"core {core}: its CPUs {threads} must have one L3 cache")
    return Machine(
        name,
        given=tuple(
            Place(cpu.id, cpu.core, cpu.core_id, cpu.socket, cpu.socket, cpu.numa, cpu.l3, cpu.type)
            for cpu in topology.cpus
        ),
        memory=equipped(topology.numa_nodes, _GIB_OF_NODE),
    )

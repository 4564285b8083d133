"""A real machine, from what `dracpu-agent topology -o json` printed on it.

The export has no architecture, no core ids and no offline CPUs: the machine counts as x86_64, a core is called by its
lowest CPU, and nothing is offline. All else is read from its tree as it stood in the export.
"""

from pathlib import Path

from dracpu_agent.topology.export import from_json
from dracpu_agent.topology.topology import Topology, TopologyError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.machines.description import Machine, Place
from dracpu_sandbox.machines.presets import PRESETS


class MachineError(SandboxError):
    """There is no such machine, or its description cannot be used."""


def find_machine(name: str) -> Machine:
    """What `--machine` names: a preset, or a file with an exported topology."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MachineError(
            f"there is no machine and no file {name}; the machines: {', '.join(PRESETS)}; "
            "a file is what `dracpu-agent topology -o json` prints"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"{name} cannot be read: {error}") from error
    try:
        return machine_of(path.stem, from_json(text))
    except TopologyError as error:
        raise MachineError(f"{name} is not what `dracpu-agent topology -o json` prints: {error}") from error


def machine_of(name: str, topology: Topology) -> Machine:
    """A machine from whose tree this topology is read again."""
    for core, threads in topology.cores.items():
        if len({topology.by_id[cpu].l3 for cpu in threads}) > 1:
            raise TopologyError(f"core {core}: its CPUs {threads} must have one L3 cache")
    return Machine(
        name,
        given=tuple(
            Place(cpu.id, cpu.core, cpu.core_id, cpu.socket, cpu.socket, cpu.numa, cpu.l3, cpu.type)
            for cpu in topology.cpus
        ),
    )

"""Finds the CPUs that are close to each PCIe root.

sysfs does not list a CPU's roots, but it lists the CPUs close to each PCI function (`local_cpulist`). A root has the
name `pci<domain>:<bus>`, both in Kubernetes' standard attribute and as a directory in sysfs on every architecture.
Current kernels use the NUMA node: all roots of a node have the same CPUs.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dracpu_agent.host.files import names_in
from dracpu_agent.topology.readings import parse_list
from dracpu_agent.topology.topology import TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet

_ROOT: Final = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_FUNCTION: Final = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_roots(sysfs_root: Path) -> Mapping[str, CpuSet]:
    """Root -> the CPUs close to it, in order of name; roots without known CPUs are absent."""
    close: dict[str, CpuSet] = {}
    for directory in _root_directories(Path(os.path.realpath(sysfs_root))):
        cpus = close.get(directory.name, EMPTY) | _close_to(directory)
        if cpus:
            close[directory.name] = cpus
    return dict(sorted(close.items()))


def _root_directories(sysfs_root: Path) -> Iterator[Path]:
    """/sys/devices/pci*, and roots below a platform device or a hypervisor's bus (arm64, Hyper-V). The latter are found
    through /sys/class/pci_bus: a root's own bus is `<root>/pci_bus/<domain>:<bus>`."""
    found: set[Path] = set()
    for name in names_in(str(sysfs_root / "devices")):
        if _ROOT.fullmatch(name):
            found.add(sysfs_root / "devices" / name)
    for bus in names_in(str(sysfs_root / "class/pci_bus")):
        directory = Path(os.path.realpath(sysfs_root / "class/pci_bus" / bus)).parent.parent
        if directory.name == f"pci{bus}":
            found.add(directory)
    return iter(sorted(found))


def _close_to(root: Path) -> CpuSet:
    """The CPUs of the functions on the root's bus, or those of the bus if it has no functions."""
    mask = 0
    for name in names_in(str(root)):
        if _FUNCTION.fullmatch(name):
            mask |= _cpus(root / name / "local_cpulist").mask
    return CpuSet.of_mask(mask) or _cpus(root / "pci_bus" / root.name.removeprefix("pci") / "cpulistaffinity")


def _cpus(path: Path) -> CpuSet:
    """The CPUs in a file, or none if it cannot be read or parsed: closeness is a preference, not a requirement."""
    try:
        return parse_list(path.read_text(encoding="ascii", errors="replace"), str(path))
    except (OSError, TopologyError):
        return EMPTY

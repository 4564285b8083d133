"""Reads the machine below the root directories that the options name."""

from dataclasses import dataclass
from pathlib import Path

from dracpu_agent.host import sysfs
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class HostMachine:
    """The machine's /sys and /proc. Both methods block while they read, and raise TopologyError."""

    sysfs_root: Path
    procfs_root: Path

    def online(self) -> CpuSet:
        """The online CPUs."""
        return sysfs.read_online(self.sysfs_root)

    def topology(self) -> Topology:
        """The topology of the whole machine."""
        return sysfs.read(self.sysfs_root, self.procfs_root)

"""The machine below the roots that the options name, read whenever it is asked for."""

from dataclasses import dataclass
from pathlib import Path

from dracpu_agent.host import sysfs
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class HostMachine:
    """Both methods block while they read, and raise TopologyError."""

    sysfs_root: Path
    procfs_root: Path

    def online(self) -> CpuSet:
        """The CPUs that are online."""
        return sysfs.read_online(self.sysfs_root)

    def topology(self) -> Topology:
        """The whole machine."""
        return sysfs.read(self.sysfs_root, self.procfs_root)

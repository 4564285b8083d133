"""Reads the machine below the root directories that the options name, as far as pods can use it."""

from dataclasses import dataclass
from pathlib import Path

from dracpu_agent.host import sysfs
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.topology.topology import Topology
from dracpu_agent.topology.usable import outdated, restricted


@dataclass(frozen=True, slots=True)
class HostMachine:
    """The machine's /sys, /proc and cgroup tree. Both methods block while they read, and raise TopologyError."""

    sysfs_root: Path
    procfs_root: Path
    cgroups: CgroupTree

    def has_changed(self, known: Topology) -> bool:
        """True if other CPUs are online than those that are known, or pods can use other ones; cheap enough to poll."""
        return outdated(known, sysfs.read_online(self.sysfs_root), self.cgroups.pods_cpus())

    def topology(self) -> Topology:
        """The topology of the whole machine, without the CPUs that pods cannot use."""
        return restricted(sysfs.read(self.sysfs_root, self.procfs_root), self.cgroups.pods_cpus())

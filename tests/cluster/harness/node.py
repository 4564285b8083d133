"""A node seen from inside: cgroups, processes and daemons, through its root shell."""

from dataclasses import dataclass

from lab.cluster import Lab

from dracpu_api.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class Node:
    """One emulated node."""

    lab: Lab
    name: str

    def sh(self, line: str, timeout: float = 60) -> str:
        """Runs a line as root and returns what it printed; raises when it fails."""
        return self.lab.sh(self.name, line, timeout)

    def cgroup_cpus(self, container: str) -> tuple[CpuSet, CpuSet]:
        """The CPUs that were written into a container's cgroup, and what the kernel makes of them.

        `container` is the id from the pod's status, like containerd://0123.
        """
        printed = self.sh(f"cd $({_find_cgroup(container)}) && cat cpuset.cpus cpuset.cpus.effective")
        written, effective = printed.splitlines()
        return CpuSet.parse(written), CpuSet.parse(effective)

    def kill_container(self, container: str) -> None:
        """kill -9 of every process of a container, as the kernel does when memory runs out."""
        self.sh(f"kill -9 $(cat $({_find_cgroup(container)})/cgroup.procs)")

    def restart_containerd(self) -> None:
        """Stops containerd; the node starts it again, and it serves."""
        self._restart("containerd")
        self.sh("until ctr version > /dev/null; do sleep 0.2; done")

    def restart_kubelet(self) -> None:
        """Stops the kubelet; the node starts it again."""
        self._restart("kubelet")

    def _restart(self, daemon: str) -> None:
        """Returns when another process runs under the name."""
        before = f"pid=$(pidof {daemon}) && kill $pid"
        after = f"until new=$(pidof {daemon}) && [ $new != $pid ]; do sleep 0.2; done"
        self.sh(f"{before} && {after}")


def _find_cgroup(container: str) -> str:
    return f"find /sys/fs/cgroup/kubepods -type d -name {container.removeprefix('containerd://')}"

"""Which CPUs of a machine pods can use at all: those in the cpuset of the cgroup that contains all pods.

The kernel gives a container that is pinned outside of that cpuset the cpuset itself, without an error. So such CPUs can
be neither offered nor shared, like CPUs that are offline.
"""

from dataclasses import replace

from dracpu_agent.topology.topology import Topology, TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet


def restricted(machine: Topology, pods: CpuSet | None) -> Topology:
    """Returns the machine without the CPUs that pods cannot use; `pods` is None if pods may use all CPUs."""
    forbidden = _forbidden(machine.online, pods)
    if not forbidden:
        return machine
    usable = machine.online - forbidden
    if not usable:
        raise TopologyError(
            f"the cgroup of all pods has the cpuset {pods}, which has none of the CPUs {machine.online}"
        )
    return replace(
        machine,
        cpus=tuple(
            replace(cpu, core=(machine.cores[cpu.core] & usable).lowest) for cpu in machine.cpus if cpu.id in usable
        ),
        forbidden=forbidden,
        pcie_roots={root: cpus & usable for root, cpus in machine.pcie_roots.items() if cpus & usable},
    )


def outdated(known: Topology, online: CpuSet, pods: CpuSet | None) -> bool:
    """True if the machine has to be read again: other CPUs are online, or pods can use other ones."""
    incomplete = CpuSet(known.incomplete)
    return (
        online != known.online | known.forbidden | incomplete
        or _forbidden(online - incomplete, pods) != known.forbidden
    )


def _forbidden(cpus: CpuSet, pods: CpuSet | None) -> CpuSet:
    return EMPTY if pods is None else cpus - pods

"""Reads how often the kernel has killed processes of a container or of a pod's containers because memory was short."""

from pathlib import Path
from typing import Final

from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.pod_cgroups import PodCgroups
from dracpu_agent.memory.kills import OomCounts, counts_in

_EVENTS: Final = "memory.events"
_LOCAL: Final = "memory.events.local"  # Linux >= 5.2
_PROCESSES: Final = "cgroup.events"  # the kernel modifies it when the last process of the cgroup has ended


class OomReader:
    """Reads the cgroups below `mount`; `tree` has the kubelet's `cgroupRoot`. All methods block, and raise CgroupError.
    They return None for a cgroup that does not exist."""

    def __init__(self, mount: Path, tree: CgroupTree) -> None:
        self._cgroups = PodCgroups(mount, tree)

    def of_container(self, pod_uid: str, container_id: str) -> OomCounts | None:
        """The counts of a container's cgroup."""
        with self._cgroups.container(pod_uid, container_id) as container:
            events = None if container is None else container.read(_EVENTS)
            return None if events is None else counts_in(events)

    def of_containers(self, pod_uid: str) -> OomCounts | None:
        """The counts of the cgroups of a pod's containers, also of those that have ended, without what has happened at
        the limit of the pod itself."""
        with self._cgroups.pod(pod_uid) as pod:
            if pod is None:
                return None
            events, local = pod.read(_EVENTS), pod.read(_LOCAL)
            return None if events is None else counts_in(events).since(counts_in(local or ""))

    def end_of(self, pod_uid: str, container_id: str) -> Path | None:
        """The file that the kernel modifies when the last process of a container has ended."""
        with self._cgroups.container(pod_uid, container_id) as container:
            return None if container is None else container.path / _PROCESSES

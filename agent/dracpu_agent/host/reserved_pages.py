"""Reads how many hugepages the processes of a pod have reserved and not touched."""

from collections.abc import Mapping
from pathlib import Path

from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.hugetlb import CONTROLLER, bytes_in, pages_limited, size_text
from dracpu_agent.host.pod_cgroups import PodCgroups


class ReservedPages:
    """Reads the cgroups of pods below `mount`; `tree` has the kubelet's `cgroupRoot`."""

    def __init__(self, mount: Path, tree: CgroupTree) -> None:
        self._cgroups = PodCgroups(mount, tree)

    def untouched(self, pod_uid: str) -> Mapping[int, int]:
        """Size of a page -> bytes that are reserved and not in use; nothing if the pod has no cgroup, or a kernel that
        does not count reservations (Linux < 5.7). Blocks; raises CgroupError."""
        with self._cgroups.pod(pod_uid) as pod:
            if pod is None:
                return {}
            found: dict[int, int] = {}
            for page in pages_limited(pod.names()):
                names = [f"{CONTROLLER}.{size_text(page)}.{name}" for name in ("rsvd.current", "current")]
                texts = [pod.read(name) for name in names]
                reserved, used = (
                    0 if text is None else bytes_in(text, f"{pod.path / name}")
                    for name, text in zip(names, texts, strict=True)
                )
                if reserved > used:
                    found[page] = reserved - used
            return found

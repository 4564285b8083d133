"""Reads the cgroups of pods, from a cgroup v2 tree.

The kubelet creates the cgroup that contains all pods below the root of the tree or, where its configuration has a
`cgroupRoot`, below that. Its name depends on the kubelet's cgroup driver: /kubepods with cgroupfs, /kubepods.slice with
systemd. A tree of cgroup v1 is not read: there, the kernel refuses a cpuset outside of the parent's, so that nothing
goes wrong silently. Which CPUs a container's cgroup allows is not known there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dracpu_agent.host.files import read_text
from dracpu_agent.topology.readings import parse_list
from dracpu_api.cpuset import CpuSet

PODS: Final = "kubepods"
SLICE: Final = ".slice"
CPUSET: Final = "cpuset"
QOS_CLASSES: Final = ("burstable", "besteffort")  # Guaranteed pods are directly in the cgroup of all pods
# of containerd and CRI-O, with the cgroup drivers cgroupfs and systemd; crun may add a cgroup below that of systemd
_NAMES_OF_CONTAINERS: Final = ("{}", "crio-{}", "cri-containerd-{}.scope", "crio-{}.scope/container", "crio-{}.scope")


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """A cgroup tree as it is mounted, and the kubelet's `cgroupRoot`; "" finds a root of one level by itself."""

    mount: Path
    cgroup_root: str = ""

    def pods_cpus(self) -> CpuSet | None:
        """The CPUs that the kernel lets pods use; None if that is not known. Raises TopologyError."""
        pods = self.pods_cgroup()
        text = None if pods is None else read_text(f"{pods}/cpuset.cpus.effective")
        return parse_list(text, f"{pods}/cpuset.cpus.effective") if text and text.strip() else None

    def without_cpuset(self) -> str:
        """The cgroup that lacks the cpuset controller, so that no pod in it can be given CPUs; "" if none does.

        If the root has the controller, the kubelet requires it of the cgroups of all pods itself, and fails loudly.
        """
        pods = self.pods_cgroup() or self.mount
        controllers = _words(pods / "cgroup.controllers")
        if controllers is None or CPUSET in controllers:  # None: no tree of cgroup v2
            return ""
        return f"/{pods.relative_to(self.mount)}" if pods != self.mount else "/"

    def running(self, pod_uids: frozenset[str]) -> frozenset[str]:
        """Those of the pods in whose cgroups processes run; none without a tree of cgroup v2."""
        pods = self.pods_cgroup()
        if pods is None:
            return frozenset()
        return frozenset(uid for uid in pod_uids if any(map(_populated, cgroups_of(pods, uid))))

    def container_cpus(self, pod_uid: str, container_id: str) -> CpuSet | None:
        """The CPUs that the cgroup of a container allows; None if that is not known."""
        pods = self.pods_cgroup()
        if pods is None:
            return None
        for cgroup in cgroups_of_container(pods, pod_uid, container_id):
            # an unset cpuset is that of the parent
            text = (read_text(f"{cgroup}/cpuset.cpus") or "").strip() or read_text(f"{cgroup}/cpuset.cpus.effective")
            if text is not None and text.strip():
                return parse_list(text, f"{cgroup}/cpuset.cpus")
        return None

    def pods_cgroup(self) -> Path | None:
        """The cgroup of all pods, if the kubelet has created it. One that has processes comes before one that was left
        behind by a kubelet with another cgroup driver."""
        if not _is_cgroup(self.mount):
            return None
        places = _places([name for name in self.cgroup_root.split("/") if name])
        found = [place for place in (self.mount / name for name in places) if _is_cgroup(place)]
        if not found and not self.cgroup_root:
            found = list(self._one_level_below())
        return next(filter(_populated, found), found[0] if found else None)

    def _one_level_below(self) -> Iterator[Path]:
        """Such as kubelet.slice/kubelet-kubepods.slice on the nodes of kind."""
        for parent in sorted(self.mount.iterdir()):
            for place in _places([parent.name.removesuffix(SLICE)]):
                if _is_cgroup(self.mount / place):
                    yield self.mount / place


def _places(cgroup_root: Sequence[str]) -> tuple[str, str]:
    """Where the kubelet creates the cgroup of all pods with each of its cgroup drivers: systemd and cgroupfs.

    The name of a systemd slice contains those of its parents, and dashes separate them.
    """
    names = [name.replace("-", "_") for name in (*cgroup_root, PODS)]
    slices = ["-".join(names[: length + 1]) + SLICE for length in range(len(names))]
    return "/".join(slices), "/".join((*cgroup_root, PODS))


def cgroups_of(pods: Path, uid: str) -> Iterator[Path]:
    """Where a pod's cgroup is: in the one of its QoS class, with the name that the kubelet's cgroup driver gives it."""
    for parent in qos_cgroups(pods):
        yield _inner(parent, f"pod{uid}".replace("/", ""))


def cgroups_of_container(pods: Path, uid: str, container_id: str) -> Iterator[Path]:
    """Where a container's cgroup is: in the one of its pod, with the name that its runtime gives it."""
    for pod in cgroups_of(pods, uid):
        for name in _NAMES_OF_CONTAINERS:
            yield pod / name.format(container_id.replace("/", ""))


def qos_cgroups(pods: Path) -> Sequence[Path]:
    """The cgroups in which the kubelet creates those of pods; the first, of Guaranteed pods, is that of all pods."""
    return [pods, *(_inner(pods, qos) for qos in QOS_CLASSES)]


def _inner(parent: Path, name: str) -> Path:
    """The path of a cgroup in this parent; the kubelet's cgroup driver shows in the parent's name."""
    if not parent.name.endswith(SLICE):
        return parent / name
    return parent / f"{parent.name.removesuffix(SLICE)}-{name.replace('-', '_')}{SLICE}"


def _is_cgroup(directory: Path) -> bool:
    return read_text(f"{directory}/cgroup.controllers") is not None


def _populated(cgroup: Path) -> bool:
    return "populated 1" in (read_text(f"{cgroup}/cgroup.events") or "").splitlines()


def _words(path: Path) -> Sequence[str] | None:
    text = read_text(str(path))
    return None if text is None else text.split()

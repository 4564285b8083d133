"""Reads and writes how many hugepages the cgroups of pods allow.

The kubelet allows a pod the pages that its spec requests, and none that come from a claim. So the agent writes these
limits itself, into a mount of the cgroup tree that is writable. Whatever else is in the tree, only files of the cgroup
of the pod with the given UID are written. Which limits are right is decided elsewhere.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dracpu_agent.host import hugetlb
from dracpu_agent.host.beneath import Directory
from dracpu_agent.host.cgroup_errors import (
    CgroupError,
    ControllerMissingError,
    NotWritableError,
    PodGoneError,
)
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.hugetlb_access import CONTROLLERS, memory_problem_of, not_passed_on, problem_of
from dracpu_agent.host.pod_cgroups import PodCgroups


class PodLimits:
    """The limits of hugepages of pods, below `mount`; `tree` has the kubelet's `cgroupRoot`. All methods block.

    They raise InvalidIdError for a text that is no UID, UnsafeCgroupError where something else is in place of a cgroup
    or of its files, NotWritableError, and CgroupError for every other refusal of the kernel.
    """

    def __init__(self, mount: Path, tree: CgroupTree) -> None:
        self._mount = mount
        self._cgroups = PodCgroups(mount, tree)

    def read(self, pod_uid: str) -> Mapping[int, int] | None:
        """Size of a page -> bytes that processes of the pod may use, UNLIMITED for "max"; sizes that the cgroup does
        not limit are absent. None if the pod has no cgroup."""
        with self._cgroups.pod(pod_uid) as pod:
            if pod is None:
                return None
            names = {page: hugetlb.limit_file(page) for page in hugetlb.pages_limited(pod.names())}
            texts = {page: pod.read(name) for page, name in names.items()}
            if pod.read(CONTROLLERS) is None:  # the pod has ended while its files were read
                return None
            return {
                page: hugetlb.limit_in(text, page, f"{pod.path / names[page]}")
                for page, text in texts.items()
                if text is not None
            }

    def files(self, pod_uid: str) -> Sequence[Path]:
        """The files with the limits of use and reservation, to be watched; none if the pod has no cgroup.

        A watch follows the file that has the path when the watch is added. So add the watches first, then read or
        write the limits: no change is missed in between.
        """
        with self._cgroups.pod(pod_uid) as pod:
            if pod is None:
                return []
            names = frozenset(pod.names())
            limits = (hugetlb.limit_files(page) for page in hugetlb.pages_limited(names))
            return [pod.path / name for pair in limits for name in pair if name in names]

    def write(self, pod_uid: str, limits: Mapping[int, int]) -> bool:
        """Limits use and reservation of pages: size of a page -> bytes, which are rounded down to whole pages;
        UNLIMITED allows everything. Files that show the limit already are not written. Returns whether any was.

        Raises BusyLimitError, after the limits of all other sizes were written; PodGoneError, if the pod has no cgroup
        or has none any more; ControllerMissingError, before anything is written, if a size cannot be limited.
        """
        with self._cgroups.pod(pod_uid) as pod:
            if pod is None:
                raise self._without_cgroup(pod_uid)
            missing = limits.keys() - set(hugetlb.pages_limited(pod.names()))
            if missing:
                raise _missing(pod, missing)
            return hugetlb.write_limits(pod, limits, str(pod.path))

    def problem(self) -> str:
        """Why no pod's limits can be written, and what to do; "" if they can be."""
        try:
            return problem_of(self._mount, self._cgroups.path_of_all_pods())
        except CgroupError as error:
            return str(error)

    def memory_problem(self) -> str:
        """Why ordinary memory cannot be limited either, and what to do; "" if it can be, or if that is not known."""
        return memory_problem_of(self._mount)

    def _without_cgroup(self, pod_uid: str) -> CgroupError:
        pods = self._cgroups.path_of_all_pods()
        if pods is None:
            return NotWritableError(problem_of(self._mount, pods))
        return PodGoneError(
            f"pod {pod_uid} has no cgroup in {pods}: it has ended and needs no limits, or the kubelet has not created"
            " its cgroup yet"
        )


def _missing(pod: Directory, pages: set[int]) -> CgroupError:
    """Why the cgroup does not have the files of these sizes."""
    controllers = pod.read(CONTROLLERS)
    if controllers is None:
        return PodGoneError(f"{pod.path} does not exist any more: the pod has ended, and needs no limits")
    if hugetlb.CONTROLLER not in controllers.split():
        return ControllerMissingError(not_passed_on(pod.path.parent))
    return ControllerMissingError(
        f"{pod.path} cannot limit hugepages of {hugetlb.sizes_text(pages)}: the kernel does not support this size;"
        " claim hugepages of a size that is in /sys/kernel/mm/hugepages on the node"
    )

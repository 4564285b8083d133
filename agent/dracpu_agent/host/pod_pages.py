"""Reads how many hugepages each pod of the node may use and uses, from the cgroups of pods."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dracpu_agent.host import hugetlb
from dracpu_agent.host.beneath import Directory
from dracpu_agent.host.cgroup_errors import refusal
from dracpu_agent.host.cgroups import CgroupTree, qos_cgroups
from dracpu_agent.host.pod_cgroups import PodCgroups

# of the kubelet's cgroup drivers: pod<uid>, and kubepods-burstable-pod<uid>.slice with _ for each dash of the UID
_POD: Final = re.compile(r"pod(?P<uid>[0-9a-zA-Z-]+)|(?:[^/]*-)?pod(?P<slice>[0-9a-zA-Z_]+)\.slice")


class PodUse(NamedTuple):
    """Hugepages of one size, in bytes."""

    limit: int  # UNLIMITED: none
    used: int


class PodPagesReader:
    """Reads the cgroups below `mount`; `tree` has the kubelet's `cgroupRoot`."""

    def __init__(self, mount: Path, tree: CgroupTree) -> None:
        self._mount = mount
        self._cgroups = PodCgroups(mount, tree)

    def read(self) -> Mapping[str, Mapping[int, PodUse]]:
        """UID of a pod -> size of a page -> what the pod may use and uses. Blocks, and raises CgroupError."""
        pods = self._cgroups.path_of_all_pods()
        if pods is None:
            return {}
        try:
            with Directory.at(self._mount) as mount:
                found = (pod for parent in qos_cgroups(pods) for pod in _pods(mount, parent, self._mount))
                return dict(found)
        except OSError as error:
            raise refusal(error, pods, self._mount) from error


def _pods(mount: Directory, parent: Path, root: Path) -> Iterator[tuple[str, Mapping[int, PodUse]]]:
    place = mount.beneath(parent.relative_to(root).parts)
    if place is None:
        return
    with place:
        for name in place.names():
            match = _POD.fullmatch(name)
            pod = place.beneath((name,)) if match else None
            if match and pod is not None:
                with pod:
                    yield match["uid"] or match["slice"].replace("_", "-"), dict(_uses(pod))


def _uses(pod: Directory) -> Iterator[tuple[int, PodUse]]:
    for page in hugetlb.pages_limited(pod.names()):
        limit_file, use_file = hugetlb.limit_file(page), f"{hugetlb.CONTROLLER}.{hugetlb.size_text(page)}.current"
        limit, used = pod.read(limit_file), pod.read(use_file)
        if limit is not None and used is not None:
            allowed = hugetlb.limit_in(limit, page, f"{pod.path / limit_file}")
            yield page, PodUse(allowed, hugetlb.bytes_in(used, f"{pod.path / use_file}"))

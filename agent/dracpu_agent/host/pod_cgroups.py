"""Opens the cgroups of pods and of their containers, in such a way that no name and no link leads to another place."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from dracpu_agent.host.beneath import Directory
from dracpu_agent.host.cgroup_errors import InvalidIdError, refusal
from dracpu_agent.host.cgroups import CgroupTree, cgroups_of, cgroups_of_container

_POD_UID: Final = re.compile(r"[0-9a-zA-Z-]{1,128}")  # static pods have a hash without dashes
_CONTAINER_ID: Final = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_.-]{0,127}")


class PodCgroups:
    """The cgroups of pods below `mount`, where the node's cgroup v2 tree is mounted. The kubelet's `cgroupRoot` is that
    of `tree`, which may be the same tree at another mount."""

    def __init__(self, mount: Path, tree: CgroupTree) -> None:
        self._tree = replace(tree, mount=mount)

    def path_of_all_pods(self) -> Path | None:
        """The path of the cgroup of all pods, if the kubelet has created it. Raises CgroupError."""
        try:
            return self._tree.pods_cgroup()
        except OSError as error:
            raise refusal(error, self._tree.mount, self._tree.mount) from error

    @contextmanager
    def pod(self, pod_uid: str) -> Iterator[Directory | None]:
        """The pod's cgroup; None if it has none. Raises CgroupError, also for what the kernel refuses within."""
        _check(pod_uid, _POD_UID, "UID of a pod")
        yield from self._opened(lambda pods: cgroups_of(pods, pod_uid))

    @contextmanager
    def container(self, pod_uid: str, container_id: str) -> Iterator[Directory | None]:
        """The cgroup of a pod's container, with the name that its runtime gave it; None if it has none. Raises
        CgroupError, also for what the kernel refuses within."""
        _check(pod_uid, _POD_UID, "UID of a pod")
        _check(container_id, _CONTAINER_ID, "id of a container")
        yield from self._opened(lambda pods: cgroups_of_container(pods, pod_uid, container_id))

    def _opened(self, paths: Callable[[Path], Iterable[Path]]) -> Iterator[Directory | None]:
        place = self._tree.mount
        try:
            found = self._find(paths)
            if found is None:
                yield None
                return
            place = found.path
            with found:
                yield found
        except OSError as error:
            raise refusal(error, place, self._tree.mount) from error

    def _find(self, paths: Callable[[Path], Iterable[Path]]) -> Directory | None:
        """The first that exists of the paths in the cgroup of all pods."""
        pods = self.path_of_all_pods()
        if pods is None:
            return None
        with Directory.at(self._tree.mount) as mount:
            for cgroup in paths(pods):
                found = mount.beneath(cgroup.relative_to(self._tree.mount).parts)
                if found is not None:
                    return found
        return None


def _check(text: str, pattern: re.Pattern[str], what: str) -> None:
    if pattern.fullmatch(text) is None:
        raise InvalidIdError(
            f'"{text[:200]}" cannot be the {what}: nothing is read or written for it; find out who sent it to the agent'
        )

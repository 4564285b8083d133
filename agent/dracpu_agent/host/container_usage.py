"""Reads how much memory and how many hugepages a container uses, in total and on each NUMA node; reads and writes its
limits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dracpu_agent.host.beneath import Directory
from dracpu_agent.host.cgroup_errors import CgroupError, ControllerMissingError
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.hugetlb import CONTROLLER, bytes_in, pages_limited, size_text
from dracpu_agent.host.hugetlb_access import CONTROLLERS
from dracpu_agent.host.pod_cgroups import PodCgroups

_MEMORY: Final = "memory"
_MEMS: Final = "cpuset.mems"


@dataclass(frozen=True, slots=True)
class NumaUsage:
    """What a container uses on one NUMA node, in bytes."""

    anon: int = 0
    file: int = 0  # page cache, with shared memory
    pages: Mapping[int, int] = field(default_factory=dict)  # size of a page -> bytes in pages of that size


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What a container uses, in bytes. What an older kernel does not count is absent from the mappings."""

    current: int  # all that the limit counts; hugepages only where the tree is mounted with memory_hugetlb_accounting
    limit: int  # memory.max; UNLIMITED: none
    anon: int
    file: int  # page cache, with shared memory
    inactive_file: int  # the part of `file` that the kernel frees first
    shmem: int  # the part of `file` that the kernel cannot free without swap
    pages: Mapping[int, int]  # size of a page -> bytes in use
    reserved: Mapping[int, int]  # size of a page -> bytes reserved by mmap, in use or not
    numa: Mapping[int, NumaUsage]  # NUMA node -> its part
    unwritten: int = 0  # the part of `file` that is not on the disk yet
    unevictable: int = 0  # what its processes have locked in memory
    nodes: str = ""  # the NUMA nodes of its cpuset.mems; "": those of its parent


class ContainerUsages:
    """The cgroups of containers below `mount`; `tree` has the kubelet's `cgroupRoot`. The methods block."""

    def __init__(self, mount: Path, tree: CgroupTree) -> None:
        self._cgroups = PodCgroups(mount, tree)

    def read(self, pod_uid: str, container_id: str) -> ContainerUsage | None:
        """Reads how much the container uses; None if it has no cgroup, or has none any more.

        Raises InvalidIdError for a text that is no UID or id, UnsafeCgroupError where something else is in place of a
        cgroup or of its files, ControllerMissingError without the memory controller, and CgroupError.
        """
        with self._cgroups.container(pod_uid, container_id) as container:
            return None if container is None else _usage(container)

    def read_files(self, pod_uid: str, container_id: str, names: Iterable[str]) -> Mapping[str, str] | None:
        """The texts of files of the container's cgroup, without those that it lacks; None without a cgroup. Raises
        CgroupError."""
        with self._cgroups.container(pod_uid, container_id) as container:
            if container is None:
                return None
            texts = {name: container.read(name) for name in names}
        return {name: text for name, text in texts.items() if text is not None}

    def write(self, pod_uid: str, container_id: str, name: str, text: str) -> bool:
        """Writes a file of the container's cgroup; False without a cgroup. Returns when the kernel has done what
        follows from it, such as moving memory. Raises CgroupError."""
        with self._cgroups.container(pod_uid, container_id) as container:
            if container is not None:
                container.write(name, text)
        return container is not None


def _usage(container: Directory) -> ContainerUsage | None:
    current, limit = (_number(container, f"{_MEMORY}.{name}") for name in ("current", "max"))
    stat = _numbers(container, f"{_MEMORY}.stat")
    sizes = pages_limited(container.names())
    used = _of_sizes(container, sizes, "current")
    reserved = _of_sizes(container, sizes, "rsvd.current")
    numa = _by_numa(container, sizes)
    nodes = container.read(_MEMS) or ""
    controllers = container.read(CONTROLLERS)
    if controllers is None:  # it has ended while its files were read
        return None
    if current is None or limit is None or not stat:
        raise _without_memory(container, controllers)
    anon, file, inactive_file, shmem = (stat.get(name, 0) for name in ("anon", "file", "inactive_file", "shmem"))
    unwritten = stat.get("file_dirty", 0) + stat.get("file_writeback", 0)
    unevictable = stat.get("unevictable", 0)
    return ContainerUsage(
        current, limit, anon, file, inactive_file, shmem, used, reserved, numa, unwritten, unevictable, nodes.strip()
    )


def _without_memory(container: Directory, controllers: str) -> CgroupError:
    if _MEMORY in controllers.split():
        return CgroupError(f"{container.path} lacks memory.current, memory.max or memory.stat: use a newer kernel")
    parent = container.path.parent
    return ControllerMissingError(
        f"{container.path} lacks the {_MEMORY} controller, which the kubelet needs, too: enable it in the kernel and in"
        f" {parent / 'cgroup.subtree_control'} on the node, and restart the kubelet"
    )


def _of_sizes(container: Directory, sizes: Iterable[int], name: str) -> Mapping[int, int]:
    """Size of a page -> the number in its file; sizes without this file are absent."""
    numbers = {size: _number(container, f"{CONTROLLER}.{size_text(size)}.{name}") for size in sizes}
    return {size: number for size, number in numbers.items() if number is not None}


def _by_numa(container: Directory, sizes: Iterable[int]) -> Mapping[int, NumaUsage]:
    anon, file = _of_nodes(container, f"{_MEMORY}.numa_stat", "anon ", "file ")
    pages = {size: _of_nodes(container, f"{CONTROLLER}.{size_text(size)}.numa_stat", "total=")[0] for size in sizes}
    nodes = sorted({*anon, *file, *(node for of_nodes in pages.values() for node in of_nodes)})
    return {
        node: NumaUsage(
            anon.get(node, 0),
            file.get(node, 0),
            {size: of_nodes[node] for size, of_nodes in pages.items() if node in of_nodes},
        )
        for node in nodes
    }


def _of_nodes(container: Directory, name: str, *beginnings: str) -> list[Mapping[int, int]]:
    """NUMA node -> bytes, from the lines of a file that begin so: "anon N0=4096 N1=0"; the kernel adds up the counts of
    all processors each time it is read."""
    lines = (container.read(name) or "").splitlines()
    return [
        _by_node(next((line for line in lines if line.startswith(beginning)), ""), f"{container.path / name}")
        for beginning in beginnings
    ]


def _by_node(line: str, source: str) -> Mapping[int, int]:
    pairs = (word.removeprefix("N").partition("=") for word in line.split() if word.startswith("N"))
    return {int(node): bytes_in(number, source) for node, _, number in pairs if node.isdecimal()}


def _numbers(container: Directory, name: str) -> Mapping[str, int]:
    """The number after each word of a file, one in a line; none without the file."""
    pairs = (line.partition(" ") for line in (container.read(name) or "").splitlines())
    return {word: bytes_in(number, f"{container.path / name}") for word, _, number in pairs}


def _number(container: Directory, name: str) -> int | None:
    text = container.read(name)
    return None if text is None else bytes_in(text, f"{container.path / name}")

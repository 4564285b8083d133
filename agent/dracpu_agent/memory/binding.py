"""Where the memory of a container comes from: bound to the NUMA nodes of its claims, or from there where possible. Also
the file systems of hugepages that its claims mount.

A binding (`cpuset.mems`) needs a limit of the memory on the bound nodes, as the kernel answers a bound container that
outgrows its nodes by killing processes of the host. Only the container's whole memory can be limited. So a container
is bound only where every byte of ordinary memory that it may use was claimed strictly. A preference needs no limit: the
kernel takes memory elsewhere once the preferred nodes are full.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from dracpu_agent.errors import PlacementError
from dracpu_agent.memory.kinds import Place
from dracpu_api.quantity import format_binary

_LONGEST: Final = 4095  # bytes of a path, by the kernel
# The runtime mounts nothing within these, or mounts its own file systems there.
_TAKEN_WITH_ALL_WITHIN: Final = ("/proc", "/sys")
_TAKEN: Final = ("/", "/dev", *_TAKEN_WITH_ALL_WITHIN)


class Binding(StrEnum):
    """How closely ordinary memory is bound to the NUMA nodes of its claim."""

    STRICT = "Strict"  # nowhere else; a container that exceeds its claim is killed
    PREFERRED = "Preferred"  # elsewhere rather than not at all


class Part(NamedTuple):
    """The memory that a request of a claim gives a container at one place."""

    place: Place
    size: int
    binding: Binding = Binding.STRICT
    mount: str = ""  # where files of these pages appear; "" nowhere


class PageMount(NamedTuple):
    """A file system of hugepages."""

    path: str
    page: int  # bytes
    size: int  # bytes of all its files


def is_strict(parts: Collection[Part]) -> bool:
    """Whether a container with these parts may be bound to their NUMA nodes.

    Not one whose pages are on another node than its ordinary memory: bound to the one, it could not reach its pages;
    bound to both, its ordinary memory could fill a node on which it was promised none.
    """
    ordinary = [part for part in parts if not part.place.kind.is_huge]
    nodes = {part.place.numa for part in ordinary}
    all_strict = all(part.binding is Binding.STRICT for part in ordinary)
    return bool(ordinary) and all_strict and all(part.place.numa in nodes for part in parts)


def preferred_nodes(parts: Collection[Part], allowed: Collection[int]) -> tuple[int, ...]:
    """The NUMA nodes that a container prefers, among those that are `allowed`: all nodes of its parts, and none where
    it is bound instead. The kernel refuses a preference for nodes of which none is allowed."""
    if is_strict(parts):
        return ()
    return tuple(sorted({part.place.numa for part in parts}.intersection(allowed)))


def page_mounts(requests: Iterable[Sequence[Part]]) -> tuple[PageMount, ...]:
    """The mounts of a container that has these requests: one for each request and path."""
    sizes: list[PageMount] = []
    for parts in requests:
        of_request: Counter[tuple[str, int]] = Counter()
        for part in parts:
            if part.mount:
                of_request[part.mount, part.place.kind.page] += part.size
        sizes += (PageMount(path, page, size) for (path, page), size in of_request.items())
    return tuple(sorted(sizes))


def mount_options(mount: PageMount) -> tuple[str, ...]:
    """The options with which the kernel mounts it. Every user may make files in it, as the container's program may run
    as any user, and nothing outside of the container sees it."""
    return ("nosuid", "nodev", f"pagesize={_page_text(mount.page)}", f"size={mount.size}", "mode=1777")


def check_mounts(
    container: str, mounts: Sequence[PageMount], mounted: Collection[str], *, in_user_namespace: bool
) -> None:
    """Raises PlacementError where a container cannot have these mounts. `mounted` are the paths of its other
    mounts."""
    if not mounts:
        return
    if in_user_namespace:
        raise PlacementError(
            f"container {container} runs in a user namespace, where the kernel mounts no hugepages: remove the "
            f"parameter mount ({mounts[0].path}) from its claim, or hostUsers: false from the pod"
        )
    paths = [mount.path for mount in mounts]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise PlacementError(
            f"container {container} has two requests of hugepages that are mounted at {twice}: give each a path of "
            "its own, or let the container use one of them"
        )
    taken = next((path for path in paths if path in mounted), None)
    if taken is not None:
        raise PlacementError(
            f"container {container} has another mount at {taken}, where its claim mounts hugepages: change one of the "
            "paths"
        )


def _page_text(page: int) -> str:
    """The size of a page as the kernel reads it: "2M"."""
    return format_binary(page).removesuffix("i")


def problem_of_path(path: str) -> str:
    """Why hugepages cannot be mounted at this path; "" if they can be."""
    if not path.startswith("/"):
        return "it is not an absolute path"
    if path != "/" and any(name in {"", ".", ".."} for name in path[1:].split("/")):
        return 'it has "//", "." or "..", or ends with "/"'
    if not path.isprintable():
        return "it has characters that cannot be printed"
    if len(path.encode()) > _LONGEST:
        return f"it is longer than {_LONGEST} bytes"
    if path in _TAKEN or path.startswith(tuple(f"{taken}/" for taken in _TAKEN_WITH_ALL_WITHIN)):
        return "the runtime mounts the container's own files there"
    return ""

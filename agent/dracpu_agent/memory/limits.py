"""The limits of containers and pods that follow from claims of memory and hugepages. Only arithmetic.

A container is bound to NUMA nodes only together with a limit of its memory: the kernel answers a bound container that
outgrows its nodes by killing processes of the host.
"""

from collections.abc import Collection, Mapping

from dracpu_agent.memory.existing import MEMORY_MAX, MEMS
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.room import node_text


def memory_limits(sizes: Mapping[Place, int], spec_limit: int | None, with_memory: Collection[int]) -> dict[str, str]:
    """The files of a container's cgroup that its claims of ordinary memory set; none for a container without such a
    claim. The limit of its spec holds where it is smaller. `with_memory` are the NUMA nodes that have memory now: the
    kernel takes a binding to other nodes for no binding at all."""
    claimed = {place.numa: size for place, size in sizes.items() if not place.kind.is_huge}
    if not claimed:
        return {}
    limit = sum(claimed.values())
    limits = {MEMORY_MAX: str(limit if spec_limit is None else min(limit, spec_limit))}
    return {**limits, MEMS: node_text(claimed)} if set(claimed) <= set(with_memory) else limits


def page_limits(bytes_by_size: Mapping[int, int]) -> dict[str, str]:
    """The files of a cgroup that limit its hugepages: those in use, and those reserved. `mmap` fails beyond the second
    one; without the first one a program would be killed when it touches its pages."""
    return {file: str(limit) for page, limit in bytes_by_size.items() for file in Kind(page).limit_files}


def pages_in(sizes: Mapping[Place, int]) -> dict[int, int]:
    """The bytes of hugepages by their size, over all NUMA nodes: a cgroup limits no single one."""
    pages: dict[int, int] = {}
    for place, size in sizes.items():
        if place.kind.is_huge:
            pages[place.kind.page] = pages.get(place.kind.page, 0) + size
    return pages

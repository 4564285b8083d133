"""Brings the knowledge of a new leader up to date before its first write.

Its watches may be behind what the former leader has written, and the API server would not refuse writes that are based
on an older state: server-side apply with `force` takes the place of everything.

The API server returns the present version of each kind with a list of one object. A watch that has shown anything of
that version or a newer one has shown everything before: agents that answer see to that, and in a large cluster the
kubelets' reports. Otherwise the objects are listed by their metadata.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from dracpu_api.resources import CPU_NODES, NODES, Json, resource_version
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.follow import Scope, list_all
from dracpu_operator.known.followers import NODE_SCOPE

log = structlog.get_logger()

_SCOPE: Final = Scope(CPU_NODES, metadata_only=True)
_WATCH_SECONDS: Final = 0.5  # for the watches to show what there is
_LOOK_SECONDS: Final = 0.05


async def catch_up(fleet: Fleet, cluster: Cluster) -> None:
    """Makes sure that everything is known which was written before; marks CpuNodes to be read again that have changed
    unnoticed."""
    nodes, cpu_nodes = fleet.node_table, fleet.cpu_node_table
    wanted = {NODES: await cluster.version(NODES), CPU_NODES: await cluster.version(CPU_NODES)}
    await _until(lambda: nodes.shown >= wanted[NODES] and cpu_nodes.shown >= wanted[CPU_NODES])
    lists_nodes, lists_cpu_nodes = nodes.shown < wanted[NODES], cpu_nodes.shown < wanted[CPU_NODES]
    if lists_cpu_nodes:
        await _compare_cpu_nodes(fleet, cluster)
    if lists_nodes:
        await list_all(cluster, NODE_SCOPE, nodes)
    log.info(
        "compared what is known with the API server",
        nodes_listed=lists_nodes,
        cpu_nodes_listed=lists_cpu_nodes,
        to_read_again=len(fleet.to_read_again),
    )


async def _compare_cpu_nodes(fleet: Fleet, cluster: Cluster) -> None:
    """Removes the CpuNodes that are gone, and marks those to be read again whose present version the watch does not
    show soon."""
    present = _Present(fleet)
    await list_all(cluster, _SCOPE, present)
    await _until(lambda: not present.not_known())
    fleet.to_read_again.update(present.not_known())


async def _until(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds, for a short time at most."""
    ends = _now() + _WATCH_SECONDS
    done = holds()
    while not done and _now() < ends:
        await asyncio.sleep(_LOOK_SECONDS)
        done = holds()


class _Present:
    """Takes over a list of metadata: the versions of the CpuNodes that exist."""

    def __init__(self, fleet: Fleet) -> None:
        self._versions: dict[str, int] = {}
        self._fleet = fleet

    def store(self, raw: Json, *, watched: bool = False) -> None:
        """Records the version of a CpuNode."""
        self._versions[raw["metadata"]["name"]] = resource_version(raw)

    def remove(self, name: str, uid: str, version: float) -> None:
        """Is not called: a list shows no deletions."""

    def advance(self, version: int) -> None:
        """Notes nothing: what the list has shown is not known as long as it was not read."""

    def recheck(self, listed: Mapping[str, int], version: int) -> None:
        """Removes the CpuNodes that are gone from what is known."""
        self._fleet.cpu_node_table.recheck(listed, version)

    def not_known(self) -> list[str]:
        """The CpuNodes that are not known in the listed version or a newer one."""
        known = self._fleet.cpu_nodes
        return [name for name, version in self._versions.items() if name not in known or known[name].version < version]


def _now() -> float:
    return asyncio.get_running_loop().time()

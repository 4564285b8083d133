"""Brings the knowledge of a new leader up to date before its first write.

Its watches may be behind what the former leader has written, and the API server would not refuse writes that are based
on an older state: server-side apply with `force` takes the place of everything. A list shows all writes that were
executed before it was requested. The metadata are enough to find out which CpuNodes have changed, and usually the
watch has shown all but the last few.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from dracpu_api.resources import CPU_NODES, NODES, Json, resource_version
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.follow import Scope, list_all
from dracpu_operator.known.followers import NODE_SCOPE

log = structlog.get_logger()

_SCOPE: Final = Scope(CPU_NODES, metadata_only=True)
_WATCH_SECONDS: Final = 0.5  # for the watch to show what the list has shown
_LOOK_SECONDS: Final = 0.05


async def catch_up(fleet: Fleet, cluster: Cluster) -> None:
    """Removes the CpuNodes that are gone, and marks those to be read again whose present version the watch does not
    show soon. Lists the Nodes, unless their watch has shown something newer than this moment: in a large cluster, the
    kubelets' reports see to that, and a list would take seconds."""
    nodes_version = await cluster.version(NODES)
    present = _Present(fleet)
    await list_all(cluster, _SCOPE, present)
    behind = present.not_known(present.versions)
    ends = _now() + _WATCH_SECONDS
    while behind and _now() < ends:
        await asyncio.sleep(_LOOK_SECONDS)
        behind = present.not_known(behind)
    fleet.to_read_again.update(behind)
    nodes_are_behind = max((node.version for node in fleet.nodes.values()), default=0) < nodes_version
    if nodes_are_behind:
        await list_all(cluster, NODE_SCOPE, fleet.node_table)
    log.info(
        "compared what is known with the API server",
        cpu_nodes=len(present.versions),
        to_read_again=len(behind),
        nodes_listed=nodes_are_behind,
    )


class _Present:
    """Takes over a list of metadata: the versions of the CpuNodes that exist."""

    def __init__(self, fleet: Fleet) -> None:
        self.versions: dict[str, int] = {}
        self._fleet = fleet

    def store(self, raw: Json) -> None:
        """Records the version of a CpuNode."""
        self.versions[raw["metadata"]["name"]] = resource_version(raw)

    def remove(self, name: str, uid: str, version: float) -> None:
        """Is not called: a list shows no deletions."""

    def advance(self, version: int) -> None:
        """Notes nothing: what the list has shown is not known as long as it was not read."""

    def recheck(self, listed: Mapping[str, int], version: int) -> None:
        """Removes the CpuNodes that are gone from what is known."""
        self._fleet.cpu_node_table.recheck(listed, version)

    def not_known(self, names: Iterable[str]) -> list[str]:
        """The CpuNodes that are not known in the listed version or a newer one."""
        known = self._fleet.cpu_nodes
        return [name for name in names if name not in known or known[name].version < self.versions[name]]


def _now() -> float:
    return asyncio.get_running_loop().time()

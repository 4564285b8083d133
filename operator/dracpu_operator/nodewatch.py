"""Follows the Nodes by their metadata alone, which is all that is looked at.

The kubelets of 5,000 nodes report every five minutes at least, 12 KB each. kopf, which follows the custom resources,
takes a processor for nearly two milliseconds with each such event: more than everything else here together.
"""

import asyncio
from typing import NoReturn

import structlog

from dracpu_operator.cluster import NODES, Cluster, Json
from dracpu_operator.errors import ApiError, ExpiredError
from dracpu_operator.fleet import Fleet
from dracpu_operator.pace import Backoff, Pace

log = structlog.get_logger()


async def relist_nodes(fleet: Fleet, cluster: Cluster) -> str:
    """Puts right which Nodes there are; returns the version that a watch goes on from."""
    known = list(fleet.nodes.values())
    listed, version = await cluster.snapshot(NODES)
    fleet.recheck_nodes(known, listed)
    return version


class NodeWatch:
    """Lists once, then goes on from there; lists again when the history that it needs is gone."""

    def __init__(self, fleet: Fleet, cluster: Cluster, pace: Pace) -> None:
        self._fleet = fleet
        self._cluster = cluster
        self._pace = pace
        self._version = ""  # where a watch goes on; none: only a list can tell

    async def run(self) -> NoReturn:
        """Until cancelled."""
        backoff = Backoff(self._pace.retry_first, self._pace.retry_cap)
        problem = ""
        while True:
            try:
                if not self._version:
                    self._version = await relist_nodes(self._fleet, self._cluster)
                await self._follow()
            except ApiError as error:
                if isinstance(error, ExpiredError):
                    self._version = ""
                elif str(error) != problem:
                    problem = str(error)
                    log.warning("nodes are not watched at the moment, trying again", error=problem)
                await asyncio.sleep(backoff.next())
            else:
                problem = ""
                backoff.reset()
                await asyncio.sleep(self._pace.debounce)  # were it to end at once, again and again

    async def _follow(self) -> None:
        async for event in self._cluster.watch(NODES, self._version):
            metadata = event["object"]["metadata"]
            self._version = metadata["resourceVersion"]
            self._note(event["type"], event["object"])

    def _note(self, kind: str, node: Json) -> None:
        if kind == "DELETED":
            self._fleet.lose_node(node["metadata"]["name"], node["metadata"]["uid"])
        elif kind != "BOOKMARK":
            self._fleet.see_node(node)

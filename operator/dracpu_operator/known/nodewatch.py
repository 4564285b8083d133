"""Follows the Nodes by their metadata alone, which is all that is looked at.

The kubelets of 5,000 nodes report every five minutes at least, 12 KB each. kopf, which follows the custom resources,
takes a processor for nearly two milliseconds with each such event: more than everything else here together.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn, Protocol

import structlog

from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ExpiredError
from dracpu_api.resources import NODES, Json, Resource
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet

log = structlog.get_logger()


class Source(Protocol):
    """Lists and watches objects by their metadata alone; raises ApiError."""

    async def snapshot(self, resource: Resource) -> tuple[list[Json], str]:
        """Returns all objects of a kind, and the version from which a watch continues."""

    def watch(self, resource: Resource, since: str) -> AsyncIterator[Json]:
        """Yields what happens to the objects after a version; raises ExpiredError when that version is too old."""


async def relist_nodes(fleet: Fleet, source: Source) -> str:
    """Puts right which Nodes there are; returns the version that a watch goes on from."""
    known = list(fleet.nodes.values())
    listed, version = await source.snapshot(NODES)
    fleet.recheck_nodes(known, listed)
    return version


class NodeWatch:
    """Lists once, then goes on from there; lists again when the history that it needs is gone."""

    def __init__(self, fleet: Fleet, source: Source, intervals: Intervals) -> None:
        self._fleet = fleet
        self._source = source
        self._intervals = intervals
        self._version = ""  # where a watch goes on; none: only a list can tell

    async def run(self) -> NoReturn:
        """Until cancelled."""
        backoff = Backoff(self._intervals.retry_first, self._intervals.retry_cap)
        problem = ""
        while True:
            try:
                if not self._version:
                    self._version = await relist_nodes(self._fleet, self._source)
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
                await asyncio.sleep(self._intervals.debounce)  # were it to end at once, again and again

    async def _follow(self) -> None:
        async for event in self._source.watch(NODES, self._version):
            metadata = event["object"]["metadata"]
            self._version = metadata["resourceVersion"]
            self._note(event["type"], event["object"])

    def _note(self, kind: str, node: Json) -> None:
        if kind == "DELETED":
            self._fleet.lose_node(node["metadata"]["name"], node["metadata"]["uid"])
        elif kind != "BOOKMARK":
            self._fleet.see_node(node)

"""Watches the Nodes by their metadata alone, which is all that the operator needs of them.

The kubelets of 5,000 nodes report at least every five minutes, and each report is an event with 12 KB. kopf, which
watches the custom resources, needs nearly two milliseconds of a processor for each event: more than everything else in
the operator together.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn, Protocol

import structlog

from dracpu_api.answers import WatchEvent
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

    def watch(self, resource: Resource, since: str) -> AsyncIterator[WatchEvent]:
        """Yields the events after a version; raises ExpiredError when that version is too old."""


async def relist_nodes(fleet: Fleet, source: Source) -> str:
    """Takes over a complete list of Nodes; returns the version from which a watch continues."""
    known, before = list(fleet.nodes.values()), fleet.version
    listed, version = await source.snapshot(NODES)
    fleet.note_version(int(version), known=before)
    fleet.recheck_nodes(known, listed)
    return version


class NodeWatch:
    """Lists the Nodes, then follows the watch; lists again when the API server no longer has the events since then, and
    when the watch was silent for too long."""

    def __init__(self, fleet: Fleet, source: Source, intervals: Intervals) -> None:
        self._fleet = fleet
        self._source = source
        self._intervals = intervals
        self._version = ""  # from which a watch continues; "": a list has to come first

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
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
                    log.warning("watching Nodes failed, trying again", error=problem)
                await asyncio.sleep(backoff.next())
            else:
                problem = ""
                backoff.reset()
                await asyncio.sleep(self._intervals.debounce)  # in case every watch ends at once

    async def _follow(self) -> None:
        async for event in self._source.watch(NODES, self._version):
            metadata = event.object["metadata"]
            self._fleet.note_version(int(metadata["resourceVersion"]), known=int(self._version))
            self._version = metadata["resourceVersion"]
            if event.type == "DELETED":
                self._fleet.remove_node(metadata["name"], metadata["uid"])
            elif event.type != "BOOKMARK":
                self._fleet.store_node(event.object)

"""Keeps the CpuNodes' lists of outstanding claims up to date, and follows claims while that needs them.

While claims are known, the list of every node is kept up to date, and not only of those that change: a claim on a
device that its node does not publish any more is listed whenever it shows up.
"""

import asyncio
from collections.abc import Collection, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self

from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.jobs import Job
from dracpu_operator.api.writes import CpuNodeWriter
from dracpu_operator.decide.following import Following, is_listing
from dracpu_operator.decide.outstanding import ClaimsByNode
from dracpu_operator.decide.plan import with_current_claims
from dracpu_operator.decide.records import CpuNode
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.claimwatch import ClaimWatch
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.metrics import Metrics


class OutstandingLists:
    """An async context manager. `due_at` is the time when nothing has to be followed any more."""

    def __init__(
        self, fleet: Fleet, cluster: Cluster, writer: CpuNodeWriter, metrics: Metrics, intervals: Intervals
    ) -> None:
        self.due_at = float("inf")
        self._fleet = fleet
        self._writer = writer
        self._following = Following(intervals.following)
        self._watch = ClaimWatch(cluster, intervals, self._on_change, fleet.changed.set)
        metrics.count_claims(lambda: len(self._watch.claims))
        self._up_to_date: dict[str, tuple[str, int]] = {}  # by node: UID and generation of the CpuNode

    async def __aenter__(self) -> Self:
        await self._watch.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._watch.__aexit__(kind, error, trace)

    async def follow(self, now: datetime, *, changes_devices: bool) -> None:
        """Follows claims while that is needed. When nodes are about to change their devices, claims are known as they
        are at this moment. Raises ApiError."""
        self._following.update(self._fleet.cpu_nodes.values(), now, changes_devices=changes_devices)
        ends_at = self._following.ends_at
        self.due_at = float("inf") if ends_at is None else _now() + (ends_at - now).total_seconds()
        if changes_devices:
            await self._watch.refresh()
        elif self._following.is_needed:
            await self._watch.start()
        else:
            await self._watch.stop()
            self._up_to_date.clear()

    def claims_of(self, nodes: Collection[str]) -> ClaimsByNode:
        """The claims of nodes whose devices are about to change."""
        return {node: self._watch.claims.of(node) for node in nodes}

    def updates(self, excluded: Collection[str]) -> Iterator[Job]:
        """Jobs that update the lists of outstanding claims which have changed."""
        if not self._watch.is_complete:
            return
        for name, cpu_node in self._fleet.cpu_nodes.items():
            state = (cpu_node.uid, cpu_node.generation)
            if name in excluded or self._up_to_date.get(name) == state or not is_listing(cpu_node):
                continue
            node, spec = self._fleet.nodes.get(name), with_current_claims(cpu_node, self._claims_of(cpu_node))
            if spec is None:
                self._up_to_date[name] = state
            elif node is not None and node.uid == cpu_node.owner:
                yield self._writer.update_outstanding(node, spec, cpu_node)

    def _on_change(self, nodes: Collection[str]) -> None:
        for name in nodes:
            self._up_to_date.pop(name, None)
            cpu_node = self._fleet.cpu_nodes.get(name)
            if cpu_node is None or not is_listing(cpu_node):
                continue
            if with_current_claims(cpu_node, self._claims_of(cpu_node)) is not None:
                self._fleet.changed.set()

    def _claims_of(self, cpu_node: CpuNode) -> ClaimsByNode:
        return {cpu_node.name: self._watch.claims.of(cpu_node.name)}


def _now() -> float:
    return asyncio.get_running_loop().time()

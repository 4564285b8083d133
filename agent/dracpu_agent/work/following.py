"""Follows every change: brings the checkpoint, the slices, device health, the CpuNode's status and the metrics up to
date, once for changes that come together.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.cluster.cpunode import StatusWriter
from dracpu_agent.cluster.slices.controller import SliceController
from dracpu_agent.node import NodeState
from dracpu_agent.observe.metrics import Metrics
from dracpu_agent.report.conditions import Standing, conditions_of
from dracpu_agent.report.document import gauges_of
from dracpu_agent.report.node_status import TopologyDescription, status_of
from dracpu_agent.version import __version__
from dracpu_agent.work.changes import Changes, Follower
from dracpu_agent.work.settings import ApplySettings


class Following:
    """Passes the node's state on to everything that shows or stores it."""

    def __init__(
        self,
        node: NodeState,
        standing: Callable[[], Standing],
        changes: Changes,
        *,
        state_file: StateFile,
        settings: ApplySettings,
        slices: Mapping[str, SliceController],
        health_changed: Sequence[Callable[[], None]],
        status: StatusWriter,
        metrics: Metrics,
    ) -> None:
        self._node = node
        self._standing = standing
        self._follower = Follower(changes)
        self._state_file = state_file
        self._settings = settings
        self._slices = slices  # of each driver
        self._health_changed = health_changed
        self._status = status
        self._metrics = metrics
        self._topology = TopologyDescription(node)
        self._seen = -1  # the node's revision that was passed on last
        self._applied_revision = ""  # the revision of the settings whose devices are in force at the API server

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await self._follower.next()
            if self._seen != self._node.revision:
                self._seen = self._node.revision
                self._state_file.save_soon()
                self._settings.retry()
                self._publish()
            self._note_applied()
            conditions = conditions_of(self._node, self._standing())
            topology = self._topology.current()
            self._status.set(status_of(self._node, conditions, __version__, self._applied_revision, topology))
            self._metrics.set_nri_connected(self._node.containers.synchronized)
            self._metrics.set_node(gauges_of(self._node))
            for name, holding in self._node.holdings.items():
                lingering = sum(claim.lingering for claim in holding.values())
                self._metrics.drivers[name].set_claims(len(holding), lingering)

    def _publish(self) -> None:
        for name, slices in self._slices.items():
            if self._node.offers(name):
                slices.publish(self._node.holdings[name].driver.devices(self._node.taints))
            elif self._node.spec is not None or not self._settings.are_unknown:
                slices.withdraw()
        for health_changed in self._health_changed:
            health_changed()

    def _note_applied(self) -> None:
        if self._node.spec is None:
            self._applied_revision = ""
        elif all(self._is_published(name) for name in self._slices) and not self._node.settling:
            self._applied_revision = self._node.spec.revision

    def _is_published(self, name: str) -> bool:
        return self._slices[name].published or not self._node.holdings[name].driver.offers

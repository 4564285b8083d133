"""Writing the configs' statuses, and Events where a condition speaks otherwise than before.

What stands there already costs no request. Counts move with every claim of 5,000 nodes: they are gathered.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

import structlog

from dracpu_operator.cluster import Cluster
from dracpu_operator.errors import ApiError, ConflictError, NotFoundError
from dracpu_operator.fleet import Fleet
from dracpu_operator.metrics import Metrics
from dracpu_operator.model import Config
from dracpu_operator.selection import Selected
from dracpu_operator.summary import Announcement, announcements, is_same, is_urgent, progress_of, status_of

log = structlog.get_logger()


class StatusWriter:
    """`due_at` tells when a status that was held back wants to be written."""

    def __init__(self, fleet: Fleet, cluster: Cluster, metrics: Metrics, interval: float) -> None:
        self.due_at = float("inf")
        self._fleet = fleet
        self._cluster = cluster
        self._metrics = metrics
        self._interval = interval
        self._written_at: dict[str, float] = {}  # by the config's UID

    async def write(self, selected: Mapping[str, Selected]) -> None:
        """Tells how all configs stand."""
        self.due_at = float("inf")
        self._metrics.show({name: progress_of(one, self._fleet.cpu_nodes) for name, one in selected.items()})
        for one in selected.values():
            await self._write(one)
        known = {config.uid for config in self._fleet.configs.values()}
        self._written_at = {uid: at for uid, at in self._written_at.items() if uid in known}

    async def _write(self, selected: Selected) -> None:
        config, before = selected.config, selected.config.status
        status = status_of(selected, self._fleet.cpu_nodes, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        if is_same(status, before):
            return
        now = asyncio.get_running_loop().time()
        earliest = self._written_at.get(config.uid, now) + self._interval
        if config.uid in self._written_at and now < earliest and not is_urgent(status, before):
            self.due_at = min(self.due_at, earliest)
            return
        try:
            self._fleet.see_config(await self._cluster.apply_status(config, status))
        except (NotFoundError, ConflictError) as error:  # deleted meanwhile; the watch will tell
            log.info("a config is gone", config=config.name, error=str(error))
            return
        self._written_at[config.uid] = now
        self._metrics.asked("status", "success")
        for announcement in announcements(status, before):
            await self._announce(config, announcement)

    async def _announce(self, config: Config, announcement: Announcement) -> None:
        tell = log.warning if announcement.severity == "Warning" else log.info
        tell(announcement.note, config=config.name, reason=announcement.reason)
        try:
            await self._cluster.announce(config, announcement)
        except ApiError as error:  # the status tells the same: nobody waits for an Event
            log.warning("an Event was not sent", config=config.name, reason=announcement.reason, error=str(error))

"""Writing the configs' statuses, and Events where a condition speaks otherwise than before.

What stands there already costs no request. Counts move with every claim of 5,000 nodes: they are gathered.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from dracpu_api.errors import ApiError, ConflictError, NotFoundError, UnavailableError
from dracpu_api.resources import CONFIGS
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import ConfigEvents
from dracpu_operator.decide.records import Config
from dracpu_operator.decide.selection import Selected
from dracpu_operator.decide.summary import (
    Announcement,
    Moment,
    announcements,
    is_same,
    is_urgent,
    progress_of,
    status_of,
)
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.metrics import Metrics

log = structlog.get_logger()


class StatusWriter:
    """`due_at` tells when a status wants to be looked at again although nothing has changed."""

    def __init__(
        self, fleet: Fleet, cluster: Cluster, events: ConfigEvents, metrics: Metrics, intervals: Intervals
    ) -> None:
        self.due_at = float("inf")
        self._fleet = fleet
        self._cluster = cluster
        self._events = events
        self._metrics = metrics
        self._intervals = intervals
        self._written_at: dict[str, float] = {}  # by the config's UID

    async def write(self, selected: Mapping[str, Selected]) -> None:
        """Tells how all configs stand: one that cannot be written keeps no other from it. Raises the first error."""
        self.due_at = float("inf")
        moment = _moment(datetime.now(UTC), self._intervals)
        progress = {name: progress_of(one, self._fleet.cpu_nodes, moment) for name, one in selected.items()}
        self._metrics.show(progress)
        if any(one.is_passing for one in progress.values()):
            self.due_at = _now() + self._intervals.trouble
        errors: list[ApiError] = []
        for name, one in selected.items():
            try:
                await self._write(one, status_of(one, self._fleet.cpu_nodes, progress[name], moment))
            except ApiError as error:
                self._metrics.asked("status", "error")
                errors.append(error)
                if isinstance(error, UnavailableError):
                    break
        known = {config.uid for config in self._fleet.configs.values()}
        self._written_at = {uid: at for uid, at in self._written_at.items() if uid in known}
        if errors:
            raise errors[0]

    async def _write(self, selected: Selected, status: Mapping[str, Any]) -> None:
        config, before = selected.config, selected.config.status
        if is_same(status, before):
            return
        interval = self._intervals.status_urgent if is_urgent(status, before) else self._intervals.status
        earliest = self._written_at.get(config.uid, float("-inf")) + interval
        if _now() < earliest:
            self.due_at = min(self.due_at, earliest)
            return
        try:
            metadata = {"name": config.name, "uid": config.uid}
            body = {"metadata": metadata, "status": status}
            self._fleet.see_config(await self._cluster.apply(CONFIGS, body, subresource="status"))
        except (NotFoundError, ConflictError) as error:  # deleted meanwhile; the watch will tell
            log.info("a config is gone", config=config.name, error=str(error))
            return
        self._written_at[config.uid] = _now()
        self._metrics.asked("status", "success")
        for announcement in announcements(status, before):
            await self._announce(config, announcement)

    async def _announce(self, config: Config, announcement: Announcement) -> None:
        tell = log.warning if announcement.severity == "Warning" else log.info
        tell(announcement.note, config=config.name, reason=announcement.reason)
        try:
            await self._events.create(config, announcement)
        except ApiError as error:  # the status tells the same: nobody waits for an Event
            log.warning("an Event was not sent", config=config.name, reason=announcement.reason, error=str(error))


def _moment(now: datetime, intervals: Intervals) -> Moment:
    def text(seconds_ago: float) -> str:
        return (now - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")

    return Moment(text(0), trouble_before=text(intervals.trouble), silence_before=text(intervals.silence))


def _now() -> float:
    return asyncio.get_running_loop().time()

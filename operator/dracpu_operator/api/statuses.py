"""Writes the configs' statuses, and creates Events when a condition has changed.

A status that has not changed is not written. Counts change with every claim on 5,000 nodes: such changes are collected.

Statuses are written as merge patches: server-side apply is refused as a whole when the cluster's CRD is older than the
operator and lacks a field. The API server drops such a field without an error, so the writer compares with its last
write and the answer to it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog

from dracpu_api.errors import ApiError, ConflictError, NotFoundError, UnavailableError
from dracpu_api.merge_patch import difference, only
from dracpu_api.resources import CONFIGS, Json, resource_version
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import Events
from dracpu_operator.api.refusals import Refusals
from dracpu_operator.decide.agents import Agents
from dracpu_operator.decide.progress import Moment, progress_of
from dracpu_operator.decide.selection import Selected
from dracpu_operator.decide.status_changes import events_about, is_same, is_urgent
from dracpu_operator.decide.summary import OPTIONAL, status_of
from dracpu_operator.decide.times import TIME_FORMAT
from dracpu_operator.decide.up_to_date import Members
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.metrics import Metrics

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Written:
    """A write and its answer, which differ when the API server drops fields."""

    at: float
    sent: Json
    stored: Json


class StatusWriter:
    """`due_at` is the time at which statuses have to be computed again although no object has changed."""

    def __init__(self, fleet: Fleet, cluster: Cluster, events: Events, metrics: Metrics, intervals: Intervals) -> None:
        self.due_at = float("inf")
        self._fleet = fleet
        self._cluster = cluster
        self._events = events
        self._metrics = metrics
        self._intervals = intervals
        self._written: dict[str, Written] = {}  # by the config's UID
        self._refusals = Refusals(intervals.retry_first, intervals.refusal_cap)  # by the config's name

    def compute(
        self,
        selected: Mapping[str, Selected],
        agents: Agents,
        refused: Mapping[str, str],
        remembered: Members | None = None,
    ) -> list[tuple[Selected, Json]]:
        """Each config with its status as it should be. `refused` are the nodes whose CpuNode the API server refused,
        with its words."""
        self.due_at = float("inf")
        cpu_nodes = self._fleet.cpu_nodes
        moment = _moment(datetime.now(UTC), self._intervals)
        progress = {
            name: progress_of(followed, cpu_nodes, moment, agents, refused, remembered)
            for name, followed in selected.items()
        }
        self._metrics.set_nodes(progress)
        if any(counted.has_recent_trouble for counted in progress.values()):
            self.due_at = _now() + self._intervals.trouble
        return [
            (followed, status_of(followed, cpu_nodes, progress[name], moment)) for name, followed in selected.items()
        ]

    async def write(self, statuses: Sequence[tuple[Selected, Json]]) -> None:
        """Writes the statuses of all configs. A refused one is tried again later, and delays nothing else. Raises
        UnavailableError."""
        blocked = self._refusals.blocked(_now())
        for followed, status in statuses:
            name = followed.config.name
            if name in blocked:
                continue
            try:
                await self._write(followed, status)
            except UnavailableError:
                self._metrics.requested("status", "error")
                raise
            except ApiError as error:
                self._metrics.requested("status", "error")
                if self._refusals.add(name, error, _now()):
                    log.warning("the status of a config was refused", config=name, error=str(error))
            else:
                self._refusals.remove(name)
        configs = self._fleet.configs
        self._refusals.keep(configs)
        self.due_at = min(self.due_at, self._refusals.due_at())
        known = {config.uid for config in configs.values()}
        self._written = {uid: written for uid, written in self._written.items() if uid in known}

    def problems(self) -> list[str]:
        """Why statuses are outdated."""
        return [f"the status of config {name}: {why}" for name, why in self._refusals.reasons().items()]

    async def _write(self, selected: Selected, status: Json) -> None:
        config = selected.config
        before = _own(config.status, status)
        last = self._written.get(config.uid)
        if is_same(status, before) or (last and is_same(status, last.sent) and is_same(before, last.stored)):
            return
        interval = self._intervals.status_urgent if is_urgent(status, before) else self._intervals.status
        earliest = last.at + interval if last else float("-inf")
        if _now() < earliest:
            self.due_at = min(self.due_at, earliest)
            return
        try:
            patch = {"metadata": {"uid": config.uid}, "status": difference(status, before)}
            answer = await self._cluster.merge(CONFIGS, config.name, patch, subresource="status")
            self._fleet.compare(resource_version(answer), config.version)
            self._fleet.store_config(answer)
        except (NotFoundError, ConflictError) as error:  # deleted meanwhile, as the watch will show
            log.info("a config was deleted meanwhile", config=config.name, error=str(error))
            return
        self._written[config.uid] = Written(_now(), status, _own(answer.get("status") or {}, status))
        self._metrics.requested("status", "success")
        for event in events_about(status, before):
            await self._events.about_config(config, event)


def _own(stored: Json, status: Json) -> Json:
    """The fields of a stored status that this operator writes; a newer operator may have written others."""
    return only(stored, OPTIONAL | status.keys())


def _moment(now: datetime, intervals: Intervals) -> Moment:
    def text(seconds_ago: float) -> str:
        return (now - timedelta(seconds=seconds_ago)).strftime(TIME_FORMAT)

    return Moment(
        text(0),
        trouble_before=text(intervals.trouble),
        silence_before=text(intervals.silence),
        unanswered_before=text(intervals.unanswered),
    )


def _now() -> float:
    return asyncio.get_running_loop().time()

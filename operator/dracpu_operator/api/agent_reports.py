"""Writes what is known about the nodes' agents into their CpuNodes, beside everything else that the operator does.

The first reports after an installation are as many as there are nodes: they must not delay settings.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn

import structlog

from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, UnavailableError
from dracpu_api.resources import CPU_NODES
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import Events
from dracpu_operator.decide.agent_reports import Report
from dracpu_operator.decide.records import CpuNode
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.metrics import Metrics

log = structlog.get_logger()

_WRITERS: Final = 4
_UNSUPPORTED_SECONDS: Final = 600.0  # between two attempts when the CRD is older and lacks status.agent


@dataclass(frozen=True, slots=True)
class Due:
    """A report to write onto a CpuNode."""

    cpu_node: CpuNode
    report: Report


class AgentReports:
    """`set` replaces the reports to write; `run` writes each when it is due."""

    def __init__(self, fleet: Fleet, cluster: Cluster, events: Events, metrics: Metrics, intervals: Intervals) -> None:
        self._fleet = fleet
        self._cluster = cluster
        self._events = events
        self._metrics = metrics
        self._intervals = intervals
        self._wanted: Mapping[str, Due] = {}
        self._changed = asyncio.Event()
        self._not_before: dict[str, float] = {}  # by the CpuNode's UID: at most one write per interval
        self._paused_until = float("-inf")

    def set(self, wanted: Mapping[str, Due]) -> None:
        """Replaces the reports to write."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        backoff = Backoff(self._intervals.retry_first, self._intervals.retry_cap)
        while True:
            self._changed.clear()
            times = self._times()
            ready = deque(self._wanted[name] for name, at in times.items() if at <= _now())
            if not ready:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(times.values(), default=None)):
                        await self._changed.wait()
            elif (error := await self._write_all(ready)) is not None:
                log.info("status.agent cannot be written, trying again", error=str(error))
                await asyncio.sleep(backoff.next(error))
            else:
                backoff.reset()

    def _times(self) -> dict[str, float]:
        """When to write each report."""
        now, date = _now(), datetime.now(UTC)
        return {
            name: max(
                now + (due.report.due - date).total_seconds(),
                self._not_before.get(due.cpu_node.uid, self._paused_until),
                self._paused_until,
            )
            for name, due in self._wanted.items()
        }

    async def _write_all(self, ready: deque[Due]) -> ApiError | None:
        """Writes reports, several at a time. Returns the error when the API server is not available; the remaining
        reports are then left for later."""
        errors: list[ApiError] = []

        async def work() -> None:
            while ready and not errors and _now() >= self._paused_until:
                due = ready.popleft()
                try:
                    await self._write(due)
                except UnavailableError as error:
                    errors.append(error)

        async with asyncio.TaskGroup() as group:
            for number in range(min(_WRITERS, len(ready))):
                group.create_task(work(), name=f"agent report writer {number}")
        known = {cpu_node.uid for cpu_node in self._fleet.cpu_nodes.values()}
        self._not_before = {uid: at for uid, at in self._not_before.items() if uid in known}
        return errors[0] if errors else None

    async def _write(self, due: Due) -> None:
        cpu_node, report = due.cpu_node, due.report
        patch = {"metadata": {"uid": cpu_node.uid}, "status": {"agent": report.agent}}
        try:
            answer = await self._cluster.merge(CPU_NODES, cpu_node.name, patch, subresource="status")
        except UnavailableError:
            self._metrics.requested("agent", "error")
            raise
        except ApiError as error:  # deleted or created again, or refused: the next reconcile decides again
            self._metrics.requested("agent", "error")
            log.info("status.agent was not written", node=cpu_node.name, error=str(error))
            self._not_before[cpu_node.uid] = _now() + self._intervals.agent_report
            return
        self._metrics.requested("agent", "success")
        self._not_before[cpu_node.uid] = _now() + self._intervals.agent_report
        if report.agent is not None and "agent" not in (answer.get("status") or {}):
            log.warning(
                "the CRD of CpuNodes is older than the operator: it has no status.agent; apply the chart's CRDs"
            )
            self._paused_until = _now() + _UNSUPPORTED_SECONDS
            return
        self._fleet.store_cpu_node(answer)
        if report.event is not None:
            await self._events.about_cpu_node(cpu_node, report.event)


def _now() -> float:
    return asyncio.get_running_loop().time()

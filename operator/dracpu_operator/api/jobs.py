"""Runs requests about CpuNodes, several at a time, and records how each of them ended."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from dracpu_api.errors import ApiError, ConflictError, UnavailableError
from dracpu_operator.api.refusals import Refusals
from dracpu_operator.api.throttle import Throttle
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.metrics import Metrics, Request

log = structlog.get_logger()

_REFUSED_IN_A_ROW: Final = 32


@dataclass(frozen=True, slots=True)
class Job:
    """One request about the CpuNode of a node."""

    node: str
    kind: Request
    send: Callable[[], Awaitable[None]]


class JobRunner:
    """Runs jobs. A CpuNode is read again when it is not known whether a write was carried out. `refusals` are those of
    writes, `unreadable` those of reads."""

    def __init__(self, fleet: Fleet, refusals: Refusals, metrics: Metrics, intervals: Intervals) -> None:
        self.unreadable = Refusals(intervals.retry_first, intervals.refusal_cap)
        self._fleet = fleet
        self._refusals = refusals
        self._metrics = metrics
        self._intervals = intervals
        self._in_conflict: set[str] = set()  # nodes whose last request was refused because the CpuNode had changed

    async def run(self, jobs: Iterable[Job], *, interruptible: bool = False) -> None:
        """Runs all jobs. A refused one is recorded and does not keep the others from being run. All wait while the API
        server asks for that. When it becomes unavailable, or refuses many in a row, the remaining jobs are dropped, and
        the error is raised.

        When a Node or a config changes, the remaining `interruptible` jobs are dropped after a while, because the next
        reconcile may decide otherwise: 15,000 nodes take half a minute, in which somebody may pause the rollout.
        """
        self._in_conflict &= self._fleet.nodes.keys()
        series = _Series(deque(jobs), Throttle(self._intervals.retry_first, self._intervals.retry_cap))
        interruptible_from = _now() + (self._intervals.uninterrupted if interruptible else float("inf"))

        async def work() -> None:
            while series.queue:
                is_outdated = self._fleet.inputs_changed.is_set() and _now() >= interruptible_from
                if is_outdated and not series.throttle.is_pausing:  # the next series would not know of the pause
                    series.queue.clear()
                    self._fleet.changed.set()
                else:
                    await self._run_next(series)

        async with asyncio.TaskGroup() as group:
            for number in range(min(self._intervals.writers, len(series.queue))):
                group.create_task(work(), name=f"CpuNode writer {number}")
        if series.error is not None:
            raise series.error

    async def _run_next(self, series: "_Series") -> None:
        job = series.queue.popleft()
        await series.throttle.wait()
        try:
            await job.send()
        except ConflictError as error:
            self._failed(job)
            self._in_conflict_again(job, error)
        except UnavailableError as error:
            if series.error is None and series.throttle.pauses(error):
                self._fleet.to_read_again.add(job.node)  # unless the repeated request succeeds
                series.queue.appendleft(job)
            else:
                self._failed(job)
                series.end(error)
        except ApiError as error:  # also a 422: the object may have been created again with another UID
            self._failed(job)
            refusals = self.unreadable if job.kind == "read" else self._refusals
            if refusals.add(job.node, error, _now()):
                log.warning("a request about a CpuNode was refused", node=job.node, error=str(error))
            series.refused.add(job.node)
            self._fleet.changed.set()  # another node may take its place
            if len(series.refused) >= _REFUSED_IN_A_ROW:  # permissions are missing, rather than one object refused
                series.end(error)
        else:
            self._succeeded(job, series)

    def _succeeded(self, job: Job, series: "_Series") -> None:
        self._metrics.requested(job.kind, "success")
        series.throttle.succeeded()
        self._fleet.to_read_again.discard(job.node)
        if job.kind == "read":
            self.unreadable.remove(job.node)
        else:
            series.refused.clear()
            self._in_conflict.discard(job.node)
            self._refusals.remove(job.node)

    def _in_conflict_again(self, job: Job, error: ConflictError) -> None:
        """The CpuNode was deleted or created again meanwhile: it is read, and the next reconcile decides. A webhook may
        give this answer to each request."""
        log.info("a CpuNode has changed meanwhile", node=job.node, error=str(error))
        if job.node in self._in_conflict:
            self._refusals.add(job.node, error, _now())
        self._in_conflict.add(job.node)
        self._fleet.changed.set()

    def _failed(self, job: Job) -> None:
        self._metrics.requested(job.kind, "error")
        self._fleet.to_read_again.add(job.node)


class _Series:
    """The jobs of one run that remain, and how it goes."""

    def __init__(self, queue: deque[Job], throttle: Throttle) -> None:
        self.queue = queue
        self.throttle = throttle
        self.error: ApiError | None = None  # which has ended the run
        self.refused: set[str] = set()  # nodes, since the last request that succeeded

    def end(self, error: ApiError) -> None:
        """Drops the remaining jobs."""
        self.error = self.error or error
        self.queue.clear()


def _now() -> float:
    return asyncio.get_running_loop().time()

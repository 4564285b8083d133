"""The loop that reconciles: when something has changed, it computes a plan, writes it, and updates the statuses.

A reconcile that fails is repeated with a backoff. Everything that one reconcile leaves to the next is on the API
server, so the operator may end at any moment and another one continues.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, NoReturn

import structlog

from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError
from dracpu_operator.api.agent_reports import AgentReports, Due
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import Events
from dracpu_operator.api.jobs import JobRunner
from dracpu_operator.api.outstanding import OutstandingLists
from dracpu_operator.api.refusals import Refusals
from dracpu_operator.api.statuses import StatusWriter
from dracpu_operator.api.takeover import catch_up
from dracpu_operator.api.writes import CpuNodeWriter
from dracpu_operator.decide.agent_reports import report_of
from dracpu_operator.decide.agents import UNKNOWN, Agents
from dracpu_operator.decide.pace import Pace
from dracpu_operator.decide.plan import Memory, Plan, Situation, make_plan, small_configs_first, spec_of
from dracpu_operator.decide.times import TIME_FORMAT
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.follow import list_all
from dracpu_operator.known.followers import CONFIG_SCOPE, NODE_SCOPE
from dracpu_operator.metrics import Metrics

log = structlog.get_logger()

_STUCK_SECONDS: Final = 600.0  # a reconcile of 5,000 nodes with all its writes takes well below a minute


class Reconciler:
    """Runs until cancelled; Nodes and CpuNodes have to be known before. `loaded` is set once all configs have been
    listed, too. When `leading` is given, nothing is written before it is set."""

    def __init__(
        self,
        fleet: Fleet,
        cluster: Cluster,
        events: Events,
        reports: AgentReports,
        metrics: Metrics,
        intervals: Intervals,
        *,
        leading: asyncio.Event | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.loaded = asyncio.Event()
        self._leading = leading
        self._fleet = fleet
        self._cluster = cluster
        self._metrics = metrics
        self._intervals = intervals
        self._clock = clock or partial(datetime.now, UTC)
        self._refusals = Refusals(intervals.retry_first, intervals.refusal_cap)
        self._writer = CpuNodeWriter(fleet, cluster, events, self._refusals)
        self._jobs = JobRunner(fleet, self._refusals, metrics, intervals)
        self._reports = reports
        self._absent_since: dict[str, str] = {}  # by node: since when the agent's pod is missing
        self._removal_at = float("inf")
        self._statuses = StatusWriter(fleet, cluster, events, metrics, intervals)
        self._backoff = Backoff(intervals.retry_first, intervals.retry_cap)
        self._outstanding = OutstandingLists(fleet, cluster, self._writer, metrics, intervals)
        self._pace = Pace(intervals.debounce)
        self._memory = Memory()
        self._problem = "the cluster's objects have not been listed yet"
        self._busy_since: float | None = None
        self._recheck_at = 0.0
        self._not_before = 0.0  # the API server has asked to wait until then

    async def run(self) -> NoReturn:
        """Lists all objects, waits for the leadership, then reconciles whenever something has changed."""
        await self._until_done(self._load)
        self.loaded.set()
        if self._leading is not None:
            await self._leading.wait()
            await self._until_done(self._take_over)
        async with self._outstanding:
            while True:
                await self._until_done(self._reconcile)
                await self._wait()

    def live(self) -> list[str]:
        """Reasons to restart the operator."""
        if self._busy_since is not None and _now() - self._busy_since > _STUCK_SECONDS:
            return [f"one reconcile has taken more than {_STUCK_SECONDS:.0f} s"]
        return []

    def ready(self) -> list[str]:
        """Reasons why changes of configs do not take effect at the moment."""
        return [*([self._problem] if self._problem else []), *self._statuses.problems()]

    async def _until_done(self, step: Callable[[], Awaitable[None]]) -> None:
        done = await self._attempt(step)
        while not done:
            await asyncio.sleep(self._backoff.next())
            done = await self._attempt(step)

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> bool:
        await asyncio.sleep(max(0.0, self._not_before - _now()))
        self._busy_since = started = _now()
        try:
            await step()
        except ApiError as error:
            if str(error) != self._problem:
                log.warning("reconciling failed, trying again", error=str(error))
            self._problem = str(error)
            self._not_before = _now() + min(error.retry_after or 0.0, self._intervals.retry_cap)
            self._metrics.reconciled("error", _now() - started)
            return False
        finally:
            self._busy_since = None
            self._pace.ended(_now())
        self._problem = ""
        self._backoff.reset()
        self._metrics.reconciled("success", _now() - started)
        return True

    async def _wait(self) -> None:
        """Waits until something changes or is due, and a moment longer, because changes often come in large numbers."""
        times = (
            self._recheck_at,
            self._outstanding.due_at,
            self._statuses.due_at,
            self._refusals.due_at(),
            self._jobs.unreadable.due_at(),
            self._removal_at,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(times)):
                await self._fleet.changed.wait()
        await asyncio.sleep(self._pace.pause(_now()))

    async def _load(self) -> None:
        # a plan needs all objects: a CpuNode would be removed as long as its config is not known
        fleet = self._fleet
        await list_all(self._cluster, CONFIG_SCOPE, fleet.config_table)
        self._recheck_at = _now() + self._intervals.first_recheck
        log.info(
            "all objects listed", configs=len(fleet.configs), nodes=len(fleet.nodes), cpu_nodes=len(fleet.cpu_nodes)
        )

    async def _take_over(self) -> None:
        await catch_up(self._fleet, self._cluster)
        self._recheck_at = _now()

    async def _reconcile(self) -> None:
        fleet = self._fleet
        fleet.changed.clear()
        if fleet.lists_configs or _now() >= self._recheck_at:
            await self._recheck()
        self._jobs.unreadable.keep(fleet.to_read_again)
        to_read = fleet.to_read_again - self._jobs.unreadable.blocked(_now())
        await self._jobs.run([self._writer.read_again(name) for name in sorted(to_read)])
        situation = self._situation()
        plan = self._plan(situation)
        if any(change.current is None and not self._is_fresh(change.node.name) for change in plan.changes):
            # a CpuNode is created only for a Node that was seen just now: else the garbage collector would delete it
            await list_all(self._cluster, NODE_SCOPE, fleet.node_table)
            plan = self._plan(situation)
        changes_devices = any(not change.keeps_devices for change in plan.changes)
        refused = await self._follow_claims(situation.now, changes_devices=changes_devices)
        if changes_devices or fleet.changed.is_set():
            # a list of all claims takes some time, in which somebody may have paused the rollout or deleted a CpuNode
            situation = self._situation()
            plan = self._plan(situation)
        if refused is not None or not changes_devices:  # what needs no claims is written all the same
            plan = replace(plan, changes=tuple(change for change in plan.changes if change.keeps_devices))
        try:
            await self._write(plan, situation)
            if refused is not None:
                raise refused
        except ApiError:  # the statuses report the writes that succeeded
            await self._report(plan, situation)
            raise
        await self._report(plan, situation)

    async def _follow_claims(self, now: datetime, *, changes_devices: bool) -> ApiError | None:
        try:
            await self._outstanding.follow(now, changes_devices=changes_devices)
        except ApiError as error:
            return error
        return None

    def _plan(self, situation: Situation) -> Plan:
        fleet = self._fleet
        fleet.inputs_changed.clear()
        with self._computing():
            return make_plan(fleet.nodes, fleet.configs, fleet.cpu_nodes, situation)

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self._pace.computed(time.thread_time() - began)

    def _situation(self) -> Situation:
        fleet, now = self._fleet, self._clock()
        agents = UNKNOWN
        if fleet.follows_agents:
            present = now.strftime(TIME_FORMAT)
            self._absent_since = {node: since for node, since in self._absent_since.items() if node in fleet.nodes}
            agents = Agents(fleet.agents, fleet.daemon_sets.values(), fleet.cpu_nodes, present, self._absent_since)
        return Situation(
            now,
            agents,
            self._refusals.blocked(_now()) | fleet.to_read_again,
            self._refusals.reasons(),
            self._intervals.removal,
            self._memory,
        )

    async def _report(self, plan: Plan, situation: Situation) -> None:
        with self._computing():
            self._report_agents(situation.agents)
            statuses = self._statuses.compute(
                plan.selected, situation.agents, self._refusals.reasons(), self._memory.members
            )
        await self._statuses.write(statuses)

    def _report_agents(self, agents: Agents) -> None:
        due = {}
        for name, cpu_node in self._fleet.cpu_nodes.items():
            report = report_of(cpu_node, agents.of(name))
            if report is not None:
                due[name] = Due(cpu_node, report)
        self._reports.set(due)

    async def _write(self, plan: Plan, situation: Situation) -> None:
        fleet, now = self._fleet, situation.now
        self._removal_at = float("inf")
        if plan.next_removal is not None:
            self._removal_at = _now() + (plan.next_removal - now).total_seconds()
        claims = self._outstanding.claims_of({change.node.name for change in plan.changes if not change.keeps_devices})
        touched = {change.node.name for change in plan.changes} | {cpu_node.name for cpu_node in plan.removals}
        blocked = situation.blocked
        jobs = [self._writer.remove(cpu_node) for cpu_node in plan.removals if cpu_node.name not in blocked]
        jobs += [self._writer.mark(fleet.cpu_nodes[node], at) for node, at in plan.marks.items() if node not in blocked]
        jobs += self._outstanding.updates({*touched, *blocked})
        jobs += [
            self._writer.change(change, spec_of(change, claims), now.strftime(TIME_FORMAT))
            for change in small_configs_first(plan.changes)
        ]
        if plan.changes or plan.removals:
            log.info("writing CpuNodes", changes=len(plan.changes), removals=len(plan.removals))
        self._refusals.keep({*blocked, *(job.node for job in jobs)})
        await self._jobs.run(jobs, interruptible=True)

    async def _recheck(self) -> None:
        """Lists configs again: kopf's watch may miss a deletion, and fields that a replaced CRD has added."""
        self._fleet.lists_configs = False
        self._recheck_at = _now()  # until the list has succeeded
        await list_all(self._cluster, CONFIG_SCOPE, self._fleet.config_table)
        self._recheck_at = _now() + self._intervals.recheck

    def _is_fresh(self, node: str) -> bool:
        return self._fleet.seconds_since_seen(node) <= self._intervals.node_is_fresh


def _now() -> float:
    return asyncio.get_running_loop().time()

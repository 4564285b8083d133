"""The loop: looks at the fleet when something has changed, writes what the plan says, tells how it stands.

A look that fails is repeated with a backoff. Nothing is remembered between looks that is not on the API server, so the
operator may end at any moment and another one goes on.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NoReturn

import structlog

from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError
from dracpu_api.resources import CONFIGS, CPU_NODES, NODES, RESOURCE_CLAIMS
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import ConfigEvents
from dracpu_operator.api.statuses import StatusWriter
from dracpu_operator.api.writes import CpuNodeWriter, Job
from dracpu_operator.decide.following import Following
from dracpu_operator.decide.outstanding import AllocatedClaims, ClaimsByNode
from dracpu_operator.decide.plan import Plan, make_plan, respec, spec_of
from dracpu_operator.decide.records import CpuNode
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.nodewatch import relist_nodes
from dracpu_operator.metrics import Metrics, Request

log = structlog.get_logger()

_STUCK_SECONDS: Final = 600.0  # a look at 5,000 nodes with all its writes takes well below a minute


class Reconciler:
    """Runs until cancelled; `loaded` is set once the fleet is known completely."""

    def __init__(
        self, fleet: Fleet, cluster: Cluster, events: ConfigEvents, metrics: Metrics, intervals: Intervals
    ) -> None:
        self.loaded = asyncio.Event()
        self._fleet = fleet
        self._cluster = cluster
        self._metrics = metrics
        self._intervals = intervals
        self._writer = CpuNodeWriter(fleet, cluster, metrics, intervals.writers)
        self._statuses = StatusWriter(fleet, cluster, events, metrics, intervals)
        self._backoff = Backoff(intervals.retry_first, intervals.retry_cap)
        self._following = Following(intervals.claims_first, intervals.claims_cap)
        self._problem = "the cluster's objects have not been listed yet"
        self._busy_since: float | None = None
        self._recheck_at = 0.0

    async def run(self) -> NoReturn:
        """Lists everything, then follows what changes."""
        step = self._load
        while True:
            if not await self._attempt(step):
                await asyncio.sleep(self._backoff.next())
            elif self.loaded.is_set():
                await self._wait()
            else:
                self.loaded.set()
                step = self._look

    def live(self) -> list[str]:
        """Reasons to restart the operator."""
        if self._busy_since is not None and _now() - self._busy_since > _STUCK_SECONDS:
            return [f"one look at the fleet has taken more than {_STUCK_SECONDS:.0f} s"]
        return []

    def ready(self) -> list[str]:
        """Reasons why changes of configs do not take effect at the moment."""
        return [self._problem] if self._problem else []

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> bool:
        self._busy_since = started = _now()
        try:
            await step()
        except ApiError as error:
            if str(error) != self._problem:
                log.warning("cannot go on at the moment, trying again", error=str(error))
            self._problem = str(error)
            self._metrics.reconciled("error", _now() - started)
            return False
        finally:
            self._busy_since = None
        self._problem = ""
        self._backoff.reset()
        self._metrics.reconciled("success", _now() - started)
        return True

    async def _wait(self) -> None:
        """Until something changes or is due; then a moment longer, for changes come in crowds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(self._recheck_at, self._following.due_at, self._statuses.due_at)):
                await self._fleet.changed.wait()
        await asyncio.sleep(self._intervals.debounce)

    async def _load(self) -> None:
        # deciding from half of the fleet would remove the CpuNodes of configs that are not known yet
        fleet, cluster = self._fleet, self._cluster
        async for raw in cluster.items(CONFIGS):
            fleet.see_config(raw)
        async for raw in cluster.items(CPU_NODES):
            fleet.see_cpu_node(raw)
        async for raw in cluster.items(NODES, metadata_only=True):
            fleet.see_node(raw)
        self._recheck_at = _now() + self._intervals.first_recheck
        log.info("listed", configs=len(fleet.configs), nodes=len(fleet.nodes), cpu_nodes=len(fleet.cpu_nodes))

    async def _look(self) -> None:
        fleet = self._fleet
        fleet.changed.clear()
        if _now() >= self._recheck_at:
            await self._recheck()
        await self._writer.run([self._writer.read_again(name) for name in sorted(fleet.unsure)])
        plan = self._plan()
        if any(one.current is None and not self._is_fresh(one.node.name) for one in plan.changes):
            await relist_nodes(fleet, self._cluster)
            plan = self._plan()
        try:
            await self._write(plan)
        except ApiError:  # what did succeed is told even so
            await self._statuses.write(plan.selected)
            raise
        await self._statuses.write(plan.selected)

    def _plan(self) -> Plan:
        return make_plan(self._fleet.nodes, self._fleet.configs, self._fleet.cpu_nodes)

    async def _write(self, plan: Plan) -> None:
        touched = {one.node.name for one in plan.changes} | {one.name for one in plan.removals}
        followed = self._following.nodes(self._fleet.cpu_nodes.values())
        due = self._following.is_due(followed, _now())
        blind = {one.node.name for one in plan.changes if not one.keeps_devices}
        jobs = [self._writer.remove(one) for one in plan.removals]
        claims: ClaimsByNode = {}
        if due or blind:
            claims = await self._list_claims(blind | {one.name for one in followed}, counts=due)
            jobs += self._outstanding([one for one in followed if one.name not in touched], claims)
        for change in plan.changes:
            kind: Request = "create" if change.current is None else "change"
            jobs.append(self._writer.apply(change.node, spec_of(change, claims), change.current, kind))
        if plan.changes or plan.removals:
            log.info("writing CpuNodes", changes=len(plan.changes), removals=len(plan.removals))
        await self._writer.run(jobs)

    async def _list_claims(self, nodes: set[str], *, counts: bool) -> ClaimsByNode:
        began, found = _now(), AllocatedClaims(nodes)
        async for raw in self._cluster.items(RESOURCE_CLAIMS):
            found.add(raw)
        if counts:
            self._following.listed(began, _now())
        return found.by_node()

    def _outstanding(self, followed: list[CpuNode], claims: ClaimsByNode) -> Iterator[Job]:
        for one in followed:
            node, spec = self._fleet.nodes.get(one.name), respec(one, claims)
            if node is not None and node.uid == one.owner and spec is not None:
                yield self._writer.apply(node, spec, one, "outstanding")

    async def _recheck(self) -> None:
        """Of what kopf watches. Nodes are listed by their own watch, whenever it cannot go on from where it was."""
        fleet, cluster = self._fleet, self._cluster
        configs = list(fleet.configs.values())
        fleet.recheck_configs(configs, [raw async for raw in cluster.items(CONFIGS)])
        cpu_nodes = list(fleet.cpu_nodes.values())
        fleet.recheck_cpu_nodes(cpu_nodes, [raw async for raw in cluster.items(CPU_NODES, metadata_only=True)])
        self._recheck_at = _now() + self._intervals.recheck

    def _is_fresh(self, node: str) -> bool:
        return self._fleet.seconds_since_seen(node) <= self._intervals.node_is_fresh


def _now() -> float:
    return asyncio.get_running_loop().time()

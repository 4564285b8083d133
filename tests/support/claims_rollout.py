"""A rollout of other devices, for tests of how the operator follows claims. The reconciler runs without the watches of
other objects: a test gives it the CpuNodes, and the time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from fake_agents import FakeAgents
from fake_api import FakeApi, JsonObject
from running_operator import QUICK

from dracpu_operator.api.agent_reports import AgentReports
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import Events
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.follow import list_all
from dracpu_operator.known.followers import CPU_NODE_SCOPE, NODE_SCOPE
from dracpu_operator.metrics import Metrics
from dracpu_operator.reconcile import Reconciler

NUMA, SOCKET = "cpudevnuma000", "cpudevsocket000"


@dataclass
class Rollout:
    """A cluster whose nodes have applied grouped mode."""

    api: FakeApi
    cluster: Cluster
    now: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)
    fleet: Fleet = field(default_factory=Fleet)
    metrics: Metrics = field(default_factory=Metrics)

    @contextlib.asynccontextmanager
    async def operator(self) -> AsyncIterator[None]:
        """Runs a new process of the operator."""
        self.fleet = fleet = Fleet()
        self.metrics = metrics = Metrics()
        events = Events(self.cluster, "test")
        reports = AgentReports(fleet, self.cluster, events, metrics, QUICK)
        await list_all(self.cluster, NODE_SCOPE, fleet.node_table)
        await list_all(self.cluster, CPU_NODE_SCOPE, fleet.cpu_node_table)
        reconciler = Reconciler(fleet, self.cluster, events, reports, metrics, QUICK, clock=lambda: self.now)
        running = asyncio.create_task(reconciler.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait({running})
            if not running.cancelled():
                running.result()

    def nodes(self, count: int) -> None:
        for number in range(count):
            self.api.add("nodes", {"metadata": {"name": f"n{number}"}})

    def later(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)
        self.fleet.changed.set()

    def edit(self, **spec: object) -> None:
        self.fleet.store_config(self.api.edit("cpudriverconfigs", "all", lambda body: body["spec"].update(spec)))

    def answer(self, name: str, phase: str = "Ready") -> None:
        """The agent of a node has applied its settings."""
        FakeAgents(self.api).answer(name, phase=phase, appliedRevision=self.spec(name)["revision"])
        self.fleet.store_cpu_node(self.api.get("cpunodes", name))

    def answer_all(self) -> bool:
        """The agents of all nodes that have other settings apply them; returns whether there were none."""
        waiting = [
            raw["metadata"]["name"]
            for raw in self.api.all("cpunodes")
            if (raw.get("status") or {}).get("appliedRevision") != raw["spec"]["revision"]
        ]
        for name in waiting:
            self.answer(name)
        return not waiting

    async def switch(self, name: str = "n0", mode: str = "individual") -> None:
        """Gives a node other devices, which its agent publishes at once."""
        self.edit(mode=mode)
        await self.api.until(lambda: self.spec(name)["settings"]["mode"] == mode)
        self.answer(name)
        await self.api.until_idle()

    def claim(self, name: str, device: str = NUMA, node: str = "n0") -> None:
        result = {"driver": "dra.cpu", "pool": node, "device": device, "consumedCapacity": {"dra.cpu/cpu": "2"}}
        body = {"metadata": {"name": name}, "status": {"allocation": {"devices": {"results": [result]}}}}
        self.api.add("resourceclaims", body, namespace="default")

    def spec(self, name: str) -> JsonObject:
        return dict(self.api.get("cpunodes", name)["spec"])

    def outstanding(self, node: str = "n0") -> set[str]:
        return {claim["name"] for claim in self.spec(node).get("outstanding", ())}

    async def lists_as_outstanding(self, *names: str, node: str = "n0") -> None:
        await self.api.until(lambda: self.outstanding(node) == set(names))

    @property
    def lists(self) -> int:
        """How often all claims were listed; a list of one object shows no more than the present version."""
        found = [request.query for request in self.api.requests if str(request) == "GET resourceclaims"]
        return sum(query.get("limit") != "1" and "continue" not in query for query in found)

    def requested(self, what: str) -> int:
        return sum(str(request) == what for request in self.api.requests)

    def shows(self, claims: int) -> bool:
        """Whether the metrics show that so many claims are followed."""
        return f"dra_cpu_operator_followed_claims {claims}.0" in self.metrics.render().decode()

    @property
    def for_claims(self) -> int:
        return sum(str(request).endswith(" resourceclaims") for request in self.api.requests)

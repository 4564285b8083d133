"""The reconciler without kopf and without watches: it sees only the objects that a test gives it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Final, Self

from fake_agents import FakeAgents
from fake_api import FakeApi
from kubernetes_asyncio.client import Configuration
from running_operator import QUICK

from dracpu_operator.api.agent_reports import AgentReports
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import Events
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.follow import list_all
from dracpu_operator.known.followers import CPU_NODE_SCOPE, NODE_SCOPE
from dracpu_operator.metrics import Metrics
from dracpu_operator.reconcile import Reconciler

NEVER_FRESH: Final = replace(QUICK, node_is_fresh=-1.0)
ONE_AFTER_ANOTHER: Final = replace(NEVER_FRESH, writers=1, uninterrupted=0.0)


class Blind:
    """A cluster with the config "all", and a process of the operator, which runs from `start` on."""

    def __init__(self, api: FakeApi, cluster: Cluster, intervals: Intervals) -> None:
        self.api = api
        self.agents = FakeAgents(api)
        self.fleet = Fleet()
        self._cluster = cluster
        self._intervals = intervals
        events, metrics = Events(cluster, "test"), Metrics()
        reports = AgentReports(self.fleet, cluster, events, metrics, intervals)
        self.reconciler = Reconciler(self.fleet, cluster, events, reports, metrics, intervals)

    async def list(self) -> Self:
        """Shows the operator the Nodes and CpuNodes as they are."""
        await list_all(self._cluster, NODE_SCOPE, self.fleet.node_table)
        await list_all(self._cluster, CPU_NODE_SCOPE, self.fleet.cpu_node_table)
        return self

    def start(self) -> None:
        self.running = asyncio.create_task(self.reconciler.run(), name="reconciler")

    async def stop(self) -> None:
        """Raises the error that has ended the reconciler, if there is one."""
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running

    def successor(self) -> "Blind":
        """Returns another process, which knows nothing yet."""
        return Blind(self.api, self._cluster, self._intervals)

    def answer(self, name: str, **others: Any) -> None:
        """The agent of a node reports it ready, and the reconciler sees it."""
        revision = self.api.get("cpunodes", name)["spec"]["revision"]
        self.agents.answer(name, phase="Ready", appliedRevision=revision, **others)
        self.fleet.store_cpu_node(self.api.get("cpunodes", name))

    def answer_outdated(self) -> None:
        """The agents report all revisions applied that they have not reported yet."""
        for raw in self.api.all("cpunodes"):
            if raw["status"]["appliedRevision"] != raw["spec"]["revision"]:
                self.answer(raw["metadata"]["name"])

    def edit(self, **spec: Any) -> None:
        """Changes the spec of the config, and the reconciler sees it."""
        self.fleet.store_config(self.api.edit("cpudriverconfigs", "all", lambda body: body["spec"].update(spec)))

    def add_config(self, name: str, **spec: Any) -> None:
        """Creates another config, and the reconciler sees it."""
        self.fleet.store_config(self.api.add("cpudriverconfigs", {"metadata": {"name": name}, "spec": spec}))

    def label(self, node: str, **labels: str) -> None:
        """Changes labels of a Node, and the reconciler sees it."""
        changed = self.api.edit("nodes", node, lambda body: body["metadata"].update(labels=labels))
        self.fleet.node_table.store(changed)

    def lose_node(self, name: str) -> None:
        """A Node and its CpuNode are gone, and the reconciler sees it."""
        for plural, table in (("cpunodes", self.fleet.cpu_node_table), ("nodes", self.fleet.node_table)):
            uid = self.api.get(plural, name)["metadata"]["uid"]
            self.api.remove(plural, name)
            table.remove(name, uid)

    def having(self, mode: str) -> set[str]:
        """Returns the nodes whose settings have the mode."""
        return {raw["metadata"]["name"] for raw in self.api.all("cpunodes") if raw["spec"]["settings"]["mode"] == mode}

    def during_first(self, what: str, action: Callable[[], object]) -> None:
        """Runs something when the first matching request arrives."""
        pending = [action]

        def run(_: object) -> bool:
            while pending:
                pending.pop()()
            return False  # the request is not refused

        self.api.fail(what, 500, where=run)

    def asked(self, what: str) -> int:
        """Returns how often something was requested."""
        return sum(str(request) == what for request in self.api.requests)


@contextlib.asynccontextmanager
async def blind_operator(intervals: Intervals) -> AsyncIterator[Blind]:
    """Runs the reconciler with three nodes that have applied their first settings."""
    async with FakeApi() as api, Cluster(Configuration(host=api.url)) as cluster:
        for number in range(3):
            api.add("nodes", {"metadata": {"name": f"n{number}"}})
        api.add("cpudriverconfigs", {"metadata": {"name": "all"}, "spec": {"rollout": {"maxUnavailable": 1}}})
        blind = await Blind(api, cluster, intervals).list()
        blind.start()
        await api.until(lambda: len(api.all("cpunodes")) == 3)
        for raw in api.all("cpunodes"):
            blind.answer(raw["metadata"]["name"])
        await api.until_idle()
        try:
            yield blind
        finally:
            await blind.stop()

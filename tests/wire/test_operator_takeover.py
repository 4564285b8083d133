"""A new leader whose watches are behind: it finds out what the former leader has written before it writes anything."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from background import background
from fake_agents import FakeAgents
from fake_api import FakeApi
from kubernetes_asyncio.client import Configuration
from running_operator import QUICK

from dracpu_operator.api.agent_reports import AgentReports
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.api.events import Events
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.follow import list_all
from dracpu_operator.known.followers import CPU_NODE_SCOPE, NODE_SCOPE
from dracpu_operator.metrics import Metrics
from dracpu_operator.reconcile import Reconciler

INTERVALS = replace(QUICK, node_is_fresh=-1.0)


class Standby:
    """An operator that knows six nodes, and whose watches show nothing any more."""

    def __init__(self, api: FakeApi, fleet: Fleet, leading: asyncio.Event) -> None:
        self.api, self.fleet, self.leading = api, fleet, leading

    def former_leader_gives(self, *nodes: str, revision: str = "r2") -> None:
        """The former leader gives nodes other settings, which no agent answers; the watches do not show it."""
        for node in nodes:
            self.api.edit(
                "cpunodes",
                node,
                lambda body: body["spec"].update(
                    revision=revision, settings={**body["spec"]["settings"], "mode": "individual"}
                ),
            )

    def edit(self, **spec: object) -> None:
        """A user edits the config; this the watches do show."""
        self.fleet.store_config(self.api.edit("cpudriverconfigs", "all", lambda body: body["spec"].update(spec)))

    def having(self, mode: str) -> set[str]:
        return {raw["metadata"]["name"] for raw in self.api.all("cpunodes") if raw["spec"]["settings"]["mode"] == mode}

    def written(self) -> list[str]:
        return [text for text in self.api.written() if "cpunodes" in text]


@pytest.fixture
async def standby() -> AsyncIterator[Standby]:
    async with FakeApi() as api, Cluster(Configuration(host=api.url)) as cluster:
        for number in range(6):
            api.add("nodes", {"metadata": {"name": f"n{number}"}})
        api.add("cpudriverconfigs", {"metadata": {"name": "all"}, "spec": {"rollout": {"maxUnavailable": 2}}})
        events, metrics = Events(cluster, "test"), Metrics()
        former_fleet = Fleet()
        reports = AgentReports(former_fleet, cluster, events, metrics, INTERVALS)
        former = Reconciler(former_fleet, cluster, events, reports, metrics, INTERVALS)
        await list_all(cluster, NODE_SCOPE, former_fleet.node_table)
        async with background(former.run()):
            await api.until(lambda: len(api.all("cpunodes")) == 6)
            await api.until_idle()
        for raw in api.all("cpunodes"):
            FakeAgents(api).answer(raw["metadata"]["name"], phase="Ready", appliedRevision=raw["spec"]["revision"])
        fleet, leading = Fleet(), asyncio.Event()
        reports = AgentReports(fleet, cluster, events, metrics, INTERVALS)
        reconciler = Reconciler(fleet, cluster, events, reports, metrics, INTERVALS, leading=leading)
        await list_all(cluster, NODE_SCOPE, fleet.node_table)
        await list_all(cluster, CPU_NODE_SCOPE, fleet.cpu_node_table)
        async with background(reconciler.run()):
            await reconciler.loaded.wait()
            api.requests.clear()
            yield Standby(api, fleet, leading)


async def test_nothing_is_written_before_it_leads(standby: Standby) -> None:
    standby.edit(mode="individual")
    await standby.api.until_idle()
    assert standby.api.requests == []


async def test_nodes_that_the_former_leader_has_changed_use_the_budget(standby: Standby) -> None:
    standby.edit(mode="individual")
    standby.former_leader_gives("n4", "n5")
    standby.leading.set()
    await standby.api.until(lambda: standby.api.requests)
    await standby.api.until_idle(0.3)
    assert standby.having("individual") == {"n4", "n5"}


async def test_only_what_has_changed_is_read_again(standby: Standby) -> None:
    standby.former_leader_gives("n4")
    standby.leading.set()
    await standby.api.until(lambda: "GET cpunodes/n4" in map(str, standby.api.requests))
    await standby.api.until_idle(0.1)
    read = [str(request) for request in standby.api.requests if str(request).startswith("GET cpunodes")]
    assert read == ["GET cpunodes", "GET cpunodes", "GET cpunodes/n4"], "the version, the metadata, and the object"


async def test_a_cpu_node_that_the_former_leader_has_deleted_is_not_counted(standby: Standby) -> None:
    standby.api.remove("cpunodes", "n3")
    standby.leading.set()
    await standby.api.until(lambda: len(standby.api.all("cpunodes")) == 6)
    assert standby.written() == ["PATCH cpunodes/n3"]


async def test_what_the_watch_shows_in_time_is_not_read_again(standby: Standby) -> None:
    standby.former_leader_gives("n4")
    standby.leading.set()
    await standby.api.until(lambda: standby.api.requests)
    standby.fleet.store_cpu_node(standby.api.get("cpunodes", "n4"))
    await standby.api.until(lambda: "GET cpudriverconfigs" in map(str, standby.api.requests))
    assert "GET cpunodes/n4" not in map(str, standby.api.requests)


async def test_a_label_that_its_watch_has_not_shown_is_known_before_the_first_write(standby: Standby) -> None:
    standby.edit(nodeSelector={"matchLabels": {"pool": "a"}}, mode="individual", rollout={"maxUnavailable": "100%"})
    standby.api.edit("nodes", "n1", lambda node: node["metadata"].update(labels={"pool": "a"}))
    standby.leading.set()
    await standby.api.until(lambda: standby.having("individual"))
    await standby.api.until_idle(0.1)
    assert standby.having("individual") == {"n1"}


async def test_nodes_are_not_listed_when_their_watch_shows_the_present(standby: Standby) -> None:
    seen = standby.api.edit("nodes", "n1", lambda node: node.update(status={"heartbeat": 1}))
    standby.fleet.node_table.store(seen)
    standby.fleet.node_table.advance(int(seen["metadata"]["resourceVersion"]))
    standby.leading.set()
    await standby.api.until(lambda: "GET cpudriverconfigs" in map(str, standby.api.requests))
    lists = [request for request in standby.api.requests if str(request) == "GET nodes"]
    assert [request.query["limit"] for request in lists] == ["1"]


async def test_nothing_is_listed_when_both_watches_show_the_present(standby: Standby) -> None:
    seen = standby.api.edit("cpunodes", "n4", lambda body: body["metadata"].update(labels={"a": "b"}))
    standby.fleet.cpu_node_table.store(seen)
    standby.leading.set()
    await standby.api.until(lambda: "GET cpunodes" in map(str, standby.api.requests))
    for table in (standby.fleet.node_table, standby.fleet.cpu_node_table):
        table.advance(int(seen["metadata"]["resourceVersion"]))
    await standby.api.until(lambda: "GET cpudriverconfigs" in map(str, standby.api.requests))
    lists = [request.query["limit"] for request in standby.api.requests if request.plural in {"nodes", "cpunodes"}]
    assert lists == ["1", "1"]


async def test_it_writes_nothing_while_it_cannot_find_out(standby: Standby) -> None:
    standby.edit(mode="individual")
    standby.former_leader_gives("n4", "n5")
    standby.api.fail("GET cpunodes", 503, "ServiceUnavailable", times=5)
    standby.leading.set()
    await standby.api.until(lambda: standby.having("individual") and len(standby.api.requests) > 6)
    await standby.api.until_idle(0.3)
    assert standby.having("individual") == {"n4", "n5"}

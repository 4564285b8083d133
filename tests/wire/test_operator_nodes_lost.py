"""Nodes that lose their config, their label or their agent while the operator runs: what happens to the others."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from agent_pods import NAMESPACE, READY, AgentPods, ago, status
from background import background
from fake_agents import FakeAgents
from fake_api import FakeApi, JsonObject
from operator_world import World
from running_operator import QUICK, RunningOperator

from dracpu_operator.intervals import Intervals

NODES = ("n0", "n1", "n2", "n3")
GRACE = replace(QUICK, agent_report=0.1, removal=60.0)
PROMPT = replace(GRACE, trouble=0.2)
NOBODY = {"matchLabels": {"disk": "typo"}}
ENDED = {"exitCode": 1, "reason": "Error", "finishedAt": ago(1), "message": "cannot apply"}


class Cluster:
    """Four nodes with agents, all of which the config `all` selects."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pods = AgentPods(world.api)
        self.pods.install(*NODES)

    def operator(self, intervals: Intervals = GRACE) -> RunningOperator:
        return self.world.operator(intervals, namespace=NAMESPACE)

    async def reconciled(self) -> None:
        """Waits until an operator that was started just now has listed everything and has nothing left to do."""
        before = self._lists()
        await self.world.until(lambda: self._lists() > before)
        await self.world.api.until_idle(0.3)

    def _lists(self) -> int:
        return sum(str(request) == "GET cpudriverconfigs" for request in self.world.api.requests)

    def leaving(self) -> dict[str, str]:
        """Returns the times after which CpuNodes are deleted, by node."""
        key = "dra.cpu/remove-after"
        found = {
            raw["metadata"]["name"]: raw["metadata"].get("annotations", {}) for raw in self.world.api.all("cpunodes")
        }
        return {name: annotations[key] for name, annotations in found.items() if key in annotations}

    def has_event(self, reason: str) -> bool:
        return any(event["reason"] == reason for event in self.world.api.all("events"))

    def deleted(self) -> list[str]:
        return [str(request) for request in self.world.api.requests if str(request).startswith("DELETE cpunodes")]

    def label(self, node: str, labels: dict[str, str]) -> None:
        def write(body: JsonObject) -> None:
            body["metadata"]["labels"] = {"kubernetes.io/os": "linux", **labels}

        self.world.api.edit("nodes", node, write)

    def end_agent(self, node: str) -> None:
        self.pods.report(node, status({"terminated": ENDED}))

    async def reports(self, kind: str, reason: str) -> str:
        """Waits until a condition of the config has this reason; returns its message."""
        await self.world.until(lambda: self.world.condition(kind).get("reason") == reason)
        return str(self.world.condition(kind)["message"])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with FakeApi() as api:
        agents = FakeAgents(api)
        async with background(agents.run()):
            world = World(api, agents, tmp_path)
            for name in NODES:
                world.node(name, disk="fast")
            world.config(nodeSelector={"matchLabels": {"disk": "fast"}}, rollout={"maxUnavailable": 1})
            yield Cluster(world)


# ---- nodes that no config selects


async def test_a_config_and_the_daemon_set_that_are_deleted_together_cost_no_node_its_devices(cluster: Cluster) -> None:
    world = cluster.world
    async with cluster.operator():
        await world.applied(4)
        world.api.remove("cpudriverconfigs", "all")
        cluster.pods.uninstall()
        await world.until(cluster.leaving)
        await world.api.until_idle()
    times = cluster.leaving()
    assert len(times) == 1  # 25 % of four nodes
    async with cluster.operator():
        await cluster.reconciled()
        assert cluster.leaving() == times
        world.config()
        cluster.pods.install(*NODES)
        await world.applied(4)
        await world.until(lambda: not cluster.leaving())
    assert set(world.specs()) == set(NODES)
    assert cluster.deleted() == []


async def test_a_wrong_node_selector_in_a_paused_config_removes_nothing_and_is_named(cluster: Cluster) -> None:
    world = cluster.world
    async with cluster.operator(QUICK):
        await world.applied(4)
        world.edit(nodeSelector=NOBODY, rollout={"maxUnavailable": "100%", "paused": True})
        assert "no config selects 4 nodes any more" in await cluster.reports("Degraded", "NodesLeaving")
        await world.api.until_idle()
        assert set(world.specs()) == set(NODES)
        assert cluster.leaving() == {}


async def test_a_label_that_comes_back_within_the_grace_time_leaves_a_node_as_it_was(cluster: Cluster) -> None:
    world = cluster.world
    async with cluster.operator():
        await world.applied(4)
        before = world.api.get("cpunodes", "n2")["metadata"]["uid"]
        cluster.label("n2", {})
        await world.until(lambda: set(cluster.leaving()) == {"n2"})
        await world.until(lambda: "n2: after" in world.condition("Degraded").get("message", ""))
        assert world.condition("Degraded")["reason"] == "NodesLeaving"
        await world.until(lambda: cluster.has_event("RemovalPending"))
        cluster.label("n2", {"disk": "fast"})
        await world.until(lambda: not cluster.leaving())
        await cluster.reports("Degraded", "NoFailures")
        await world.until(lambda: cluster.has_event("RemovalCancelled"))
    assert world.api.get("cpunodes", "n2")["metadata"]["uid"] == before


async def test_after_the_grace_time_nodes_lose_their_devices(cluster: Cluster) -> None:
    world = cluster.world
    async with cluster.operator():
        await world.applied(4)
        world.edit(nodeSelector=NOBODY, rollout={"maxUnavailable": 1, "removalSeconds": 0})
        await world.until(lambda: not world.specs())
    assert len(cluster.deleted()) == 4


# ---- agents that end


async def test_settings_that_end_every_agent_reach_no_more_nodes_than_may_be_unavailable(cluster: Cluster) -> None:
    world = cluster.world
    async with cluster.operator(PROMPT):
        await world.applied(4)
        world.agents.away = set(NODES)
        world.edit(mode="individual")
        await world.until(lambda: world.having(mode="individual") == {"n0"})
        cluster.end_agent("n0")
        assert "0 of 4 nodes applied" in await cluster.reports("Progressing", "Stopped")
        assert world.condition("Progressing")["status"] == "False"
        assert "n0: Error: " in await cluster.reports("Degraded", "AgentsNotReady")
    async with cluster.operator(PROMPT):
        await cluster.reconciled()
        assert world.having(mode="individual") == {"n0"}
        world.edit(mode="grouped", reservedCPUs="1")  # the correction
        await world.until(lambda: world.having(reservedCPUs="1") == {"n0"})
        world.agents.away = set()
        cluster.pods.report("n0", status(READY, ready=True))
        await world.applied(4)


async def test_an_agent_that_is_ready_but_does_not_answer_its_settings_is_named(cluster: Cluster) -> None:
    """As when it does not reach the API server."""
    world = cluster.world
    async with cluster.operator(replace(PROMPT, unanswered=0.2)):
        await world.applied(4)
        world.agents.away = {"n0"}
        world.edit(mode="individual")
        message = await cluster.reports("Degraded", "AgentsNotReady")
        assert "the agents of 1 node are ready and have not answered their settings: n0: since" in message
        await cluster.reports("Progressing", "Stopped")
        world.agents.away = set()
        await world.applied(4)
        await cluster.reports("Degraded", "NoFailures")


async def test_a_node_that_was_down_before_a_rollout_is_not_waited_for_and_changes_when_it_is_back(
    cluster: Cluster,
) -> None:
    world = cluster.world
    lost = status(READY, ready=False)  # the kubelet does not report any more
    async with cluster.operator(PROMPT):
        await world.applied(4)
    world.api.edit("cpunodes", "n0", given_long_ago)
    cluster.pods.report("n0", lost)
    world.agents.away = {"n0"}
    async with cluster.operator(PROMPT):
        await cluster.reports("Degraded", "AgentsNotReady")
        world.edit(mode="individual")
        await world.until(lambda: world.having(mode="individual") == {"n1", "n2", "n3"})
        assert "3 of 4 nodes applied" in await cluster.reports("Progressing", "Incomplete")
        world.agents.away = set()
        cluster.pods.report("n0", status(READY, ready=True))
        await world.applied(4)


def given_long_ago(cpu_node: JsonObject) -> None:
    cpu_node["metadata"]["annotations"]["dra.cpu/given-at"] = ago(3600)

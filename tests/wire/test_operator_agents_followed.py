"""The whole operator follows the agents' pods: what users see when a pod dies, has no image, crashes or comes back."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from agent_pods import NAMESPACE, READY, AgentPods, ago, pod, status, unscheduled
from background import background
from fake_agents import FakeAgents
from fake_api import FakeApi, JsonObject
from operator_world import World
from running_operator import QUICK, RunningOperator

# a CpuNode's agent may be reported again at once
PROMPT = replace(QUICK, agent_report=0.3)


def crashed() -> JsonObject:
    """How a container has ended a moment ago."""
    return {"exitCode": 1, "reason": "Error", "finishedAt": ago(20), "message": "dracpu-agent: no NRI socket"}


class Followed:
    """A cluster with the pods of agents, and the operator that follows them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pods = AgentPods(world.api)

    def operator(self) -> RunningOperator:
        return self.world.operator(PROMPT, namespace=NAMESPACE)

    def agent(self, node: str = "n0") -> JsonObject:
        found = (raw for raw in self.world.api.all("cpunodes") if raw["metadata"]["name"] == node)
        return dict((next(found, {}).get("status") or {}).get("agent") or {})

    def refused_lists(self) -> int:
        return sum(str(request) == "GET pods" for request in self.world.api.requests)

    def events(self) -> set[str]:
        """Returns the reasons of all Events."""
        return {event["reason"] for event in self.world.api.all("events")}

    async def reported(self, *, ready: bool, node: str = "n0") -> JsonObject:
        """Waits until the node's agent is reported so; returns status.agent."""
        await self.world.until(lambda: self.agent(node).get("ready") is ready)
        return self.agent(node)

    async def degraded(self, reason: str) -> str:
        """Waits until the config is Degraded for this reason; returns the message."""
        await self.world.until(lambda: self.world.condition("Degraded").get("reason") == reason)
        assert self.world.condition("Degraded")["status"] == "True"
        return str(self.world.condition("Degraded")["message"])


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    async with FakeApi() as api:
        agents = FakeAgents(api)
        async with background(agents.run()):
            world = World(api, agents, tmp_path)
            world.nodes(3)
            world.config()
            yield Followed(world)


async def test_an_agent_that_ends_is_reported_with_the_kubelets_words_until_it_is_back(followed: Followed) -> None:
    followed.pods.install("n0", "n1", "n2")
    async with followed.operator():
        await followed.world.applied(3)
        assert (await followed.reported(ready=True))["reason"] == "Ready"
        assert followed.world.condition("Degraded")["status"] == "False"
        followed.pods.report("n0", status({"terminated": {**crashed(), "exitCode": 137}}))
        agent = await followed.reported(ready=False)
        assert agent["reason"] == "Error"
        assert "exit code 137" in agent["message"]
        assert "n0" in await followed.degraded("AgentsNotReady")
        await followed.world.until(lambda: followed.world.condition("Available")["message"].startswith("2 of 3"))
        followed.pods.report("n0", status(READY, ready=True))
        await followed.reported(ready=True)
        await followed.world.until(lambda: followed.world.condition("Degraded")["status"] == "False")
        await followed.world.until(lambda: {"AgentNotReady", "AgentReady"} <= followed.events())


async def test_a_missing_image_is_reported_with_the_kubelets_words(followed: Followed) -> None:
    followed.pods.install("n0", "n1", "n2")
    message = 'Back-off pulling image "x": ErrImagePull: not found'
    followed.pods.report("n0", status({"waiting": {"reason": "ImagePullBackOff", "message": message}}))
    async with followed.operator():
        agent = await followed.reported(ready=False)
        assert (agent["reason"], agent["message"]) == ("ImagePullBackOff", message)


async def test_a_crash_loop_is_reported_with_how_the_agent_ends(followed: Followed) -> None:
    followed.pods.install("n0", "n1", "n2")
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
    followed.pods.report("n0", status(waiting, last=crashed(), restarts=4))
    async with followed.operator():
        agent = await followed.reported(ready=False)
        assert agent["reason"] == "CrashLoopBackOff"
        assert "back-off 40s" in agent["message"]
        assert "exit code 1 (Error): dracpu-agent: no NRI socket" in agent["message"]


async def test_a_pod_that_cannot_be_scheduled_is_reported_with_the_schedulers_words(followed: Followed) -> None:
    followed.pods.install("n0", "n1", desired=3)
    lonely = pod("agent-n2", "n2", scheduled=False)
    followed.world.api.add("pods", {**lonely, "status": unscheduled("Insufficient memory")})
    async with followed.operator():
        agent = await followed.reported(ready=False, node="n2")
        assert (agent["reason"], agent["message"]) == ("Unschedulable", "Insufficient memory")


async def test_a_node_without_a_wanted_agent_is_counted_apart_and_gets_no_cpu_node(followed: Followed) -> None:
    followed.pods.install("n0", "n1")
    async with followed.operator():
        await followed.world.applied(2)
        counts = followed.world.status()["nodes"]
        assert (counts["selected"], counts["withoutAgent"]) == (2, 1)
        assert set(followed.world.specs()) == {"n0", "n1"}
        followed.pods.desire(3)
        followed.pods.add("n2")
        await followed.world.applied(3)
        assert set(followed.world.specs()) == {"n0", "n1", "n2"}


async def test_without_permission_to_follow_pods_the_operator_works_as_if_agents_were_ready(followed: Followed) -> None:
    """As with the Role of an earlier version of the chart."""
    followed.pods.install("n0")
    followed.world.api.fail("(GET|WATCH) pods", 403, "Forbidden", "cannot list pods", times=100_000)
    async with followed.operator():
        await followed.world.applied(3)
        before = followed.refused_lists()
        await followed.world.until(lambda: followed.refused_lists() >= before + 3)
        assert followed.agent() == {}


async def test_without_permission_to_follow_pods_any_more_the_reports_are_removed(followed: Followed) -> None:
    """Nobody would correct them."""
    followed.pods.install("n0", "n1", "n2")
    async with followed.operator():
        await followed.reported(ready=True)
        followed.world.api.fail("(GET|WATCH) pods", 403, "Forbidden", "cannot list pods", times=100_000)
        followed.world.api.expire_watches()
        await followed.world.until(lambda: followed.agent() == {})
        followed.world.api.heal()
        await followed.reported(ready=True)


async def test_permission_that_is_given_later_takes_effect(followed: Followed) -> None:
    followed.pods.install("n0", "n1", "n2")
    followed.pods.report("n0", status({"waiting": {"reason": "ErrImagePull", "message": "not found"}}))
    followed.world.api.fail("GET pods", 403, "Forbidden", "cannot list pods", times=3)
    async with followed.operator():
        await followed.reported(ready=False)

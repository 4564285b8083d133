"""Claims of memory keep what they have when a part of the node restarts, and serve every kind of container."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from memory_node import LIMITS, MI, SMALL, content
from memory_offering import Offering, claim, memory, pages, pod

from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.node.delays import Delays
from dracpu_sandbox.node.node import SimulatedNode
from dracpu_sandbox.resources import CLAIMS, PODS
from dracpu_sandbox.stories.story import story_in

FILES = ("cpuset.mems", "memory.max", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max")


@pytest.fixture
async def offering() -> AsyncIterator[Offering]:
    """A cluster whose kubelet repeats a failed Prepare soon: after a reboot, a driver may be registered late."""
    delays = Delays(prepare_retry=(0.5, 1.0))
    async with Sandbox({"node-1": LAB}, delays=delays) as cluster:
        await cluster.ready()
        async with story_in(cluster) as story:
            offering = Offering(cluster, story)
            await offering.offer()
            yield offering


async def agent(node: SimulatedNode) -> None:
    await node.crash_agent()
    await node.start_agent()


@pytest.mark.parametrize(
    "restart",
    [agent, SimulatedNode.restart_kubelet, SimulatedNode.restart_runtime, SimulatedNode.reboot],
    ids=["agent", "kubelet", "runtime", "machine"],
)
async def test_limits_stay_through_a_restart(
    offering: Offering, restart: Callable[[SimulatedNode], Awaitable[None]]
) -> None:
    await offering.run("user", memory("64Mi"), pages("16Mi"))
    limits = content(offering.cgroup("user"), *FILES)
    assert limits[1:] == [str(64 * MI), str(16 * MI), str(16 * MI)]
    await restart(offering.node)
    await offering.story.until_running("user")
    await offering.story.until("the pod has its pages", lambda: pod_limits(offering) == [str(16 * MI)] * 2)
    assert content(offering.cgroup("user"), *FILES) == limits
    await offering.take("user", 16 * MI, SMALL)
    await offering.run("late", memory("64Mi"), pages("16Mi"))


def pod_limits(offering: Offering) -> list[str]:
    return content(offering.cgroup("user").parent, *LIMITS[:2])


def container(name: str, request: str = "", **fields: Any) -> dict[str, Any]:
    """A container that uses the claim `user`, or one of its requests."""
    use = {"name": "user", "request": request} if request else {"name": "user"}
    return {"name": name, "image": "busybox", "command": ["sleep"], "resources": {"claims": [use]}, **fields}


async def create(offering: Offering, *containers: dict[str, Any], init: dict[str, Any]) -> None:
    await offering.client.create(CLAIMS, claim("user", memory("64Mi"), pages("16Mi")))
    await offering.client.create(PODS, pod("user", {"containers": list(containers), "initContainers": [init]}))


async def test_a_container_has_the_memory_that_an_init_container_had_before(offering: Offering) -> None:
    init = container("prepare", command=["true"])
    await create(offering, container("main"), container("beside", "pages"), init=init)
    await offering.story.until_running("user")
    assert content(offering.cgroup("user"), *FILES[1:]) == [str(64 * MI), str(16 * MI), str(16 * MI)]
    beside = offering.node.cgroup_of("default", "user", "beside")
    assert content(beside, *FILES[1:]) == ["max", str(16 * MI), str(16 * MI)]


async def test_a_container_does_not_share_the_memory_of_a_sidecar_that_runs(offering: Offering) -> None:
    await create(offering, container("main", "memory"), init=container("sidecar", "memory", restartPolicy="Always"))
    await offering.story.until_waiting("user", "has a request of memory that container sidecar uses")
    sidecar = offering.node.cgroup_of("default", "user", "sidecar")
    assert content(sidecar, "memory.max") == [str(64 * MI)]

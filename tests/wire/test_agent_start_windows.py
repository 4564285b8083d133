"""A whole agent while CPUs that it has sent to the runtime are not in force yet."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from nodes import claim_object, ref, share, uid
from whole_agent import WholeNode, whole_node

from dracpu_agent.work import pinning
from dracpu_sandbox.node.containerd import HookError, Moment
from dracpu_sandbox.node.containers import Container
from dracpu_sandbox.node.nri_runtime import NriRuntime

NUMA1 = "cpudevnuma001"


def cdi(number: int) -> str:
    return f"dra.k8s.io/cpu=claim-{uid(number)}"


class Halt:
    """Stops the runtime's procedures of one container at one moment."""

    def __init__(self, runtime: NriRuntime, moment: Moment) -> None:
        self._moment = moment
        self.reached, self.over = asyncio.Event(), asyncio.Event()
        runtime.at_moment = self._at_moment

    async def _at_moment(self, moment: Moment, _: Container) -> None:
        if moment is self._moment and not self.over.is_set():
            self.reached.set()
            await self.over.wait()


@contextlib.asynccontextmanager
async def starting(node: WholeNode, moment: Moment) -> AsyncIterator[tuple[Halt, "asyncio.Task[str]"]]:
    """A container without claims that is being started on CPUs 2-7 and has come to this moment."""
    halt = Halt(node.runtime, moment)
    creation = asyncio.create_task(node.runtime.create_container(node.pod(), "young"))
    await halt.reached.wait()
    try:
        yield halt, creation
    finally:
        halt.over.set()
        await asyncio.wait((creation,))


@pytest.mark.parametrize("moment", [Moment.STORED, Moment.CGROUP_WRITTEN, Moment.START_ALLOWED, Moment.PROCESS_STARTED])
async def test_a_claim_is_prepared_only_after_containers_that_are_being_started_on_its_cpus(moment: Moment) -> None:
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 4)]))
        async with starting(node, moment) as (halt, creation):
            preparation = asyncio.create_task(node.kubelet.prepare_one(ref(1)))
            await node.granted(1)
            assert not preparation.done()
            halt.over.set()
            await preparation
            pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
            assert node.runtime.cpuset_of(pinned) == "4-7"
            assert node.runtime.cpuset_of(await creation) == "2-3"


async def test_a_start_that_hangs_is_refused_when_the_claims_container_came_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pinning, "SETTLE_SECONDS", 0.0)
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 4)]))
        async with starting(node, Moment.CGROUP_WRITTEN) as (halt, creation):
            await node.kubelet.prepare_one(ref(1))
            pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)], start=False)
            halt.over.set()
            with pytest.raises(HookError, match="the kubelet creates it again"):
                await creation
            await node.runtime.start_container(pinned)
            assert node.runtime.cpuset_of(pinned) == "4-7"


async def test_a_container_that_was_started_while_the_agent_restarted_is_moved_to_its_cpus() -> None:
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 4)]))
        await node.stop_agent()
        async with starting(node, Moment.RUNNING) as (_, creation):
            await node.start_agent()
            (young,) = node.runtime.containers
            await node.runtime.until(lambda: node.runtime.cpuset_of(young) == "2-7")
        assert await creation == young


async def test_a_resize_that_the_runtime_applies_late_does_not_bring_a_container_back_onto_a_claims_cpus() -> None:
    async with whole_node() as node:
        shared = await node.runtime.create_container(node.pod(), "shared")
        halt = Halt(node.runtime, Moment.UPDATE_ALLOWED)
        resize = asyncio.create_task(node.runtime.update_container(shared))
        await halt.reached.wait()
        node.claim(claim_object(1, [share(NUMA1, 4)]))
        preparation = asyncio.create_task(node.kubelet.prepare_one(ref(1)))
        await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-3")  # pushed while the resize is pending
        halt.over.set()
        await resize
        await preparation
        await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-3")
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(shared)) == ("4-7", "2-3")


async def test_a_container_is_moved_again_after_the_runtime_failed_to_move_it_in_a_reply() -> None:
    async with whole_node() as node:
        shared = await node.runtime.create_container(node.pod(), "shared")
        node.runtime.containerd.failing_updates.add(shared)
        node.claim(claim_object(1, [share(NUMA1, 4)]))
        await node.kubelet.prepare_one(ref(1))
        await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        node.runtime.containerd.failing_updates.clear()
        await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-3")

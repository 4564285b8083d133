"""A whole agent while CPUs that it has sent to the runtime are not in force yet."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from cgroup_trees import write_cgroup
from nodes import claim_object, ref, share, uid
from whole_agent import WholeNode, whole_node

from dracpu_agent.work import pinning
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.machines.tree import directory, write_tree
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
async def starting(
    node: WholeNode, moment: Moment, *cdi_devices: str
) -> AsyncIterator[tuple[Halt, "asyncio.Task[str]"]]:
    """A container that is being started, without claims on CPUs 2-7, and has come to this moment."""
    halt = Halt(node.runtime, moment)
    creation = asyncio.create_task(node.runtime.create_container(node.pod(), "young", cdi_devices=cdi_devices))
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


async def test_a_claims_container_is_created_after_a_start_on_its_cpus_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pinning, "SETTLE_SECONDS", 0.0)
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 4)]))
        async with starting(node, Moment.CGROUP_WRITTEN) as (halt, creation):
            await node.kubelet.prepare_one(ref(1))
            with pytest.raises(HookError, match="the kubelet retries"):
                await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
            halt.over.set()
            young = await creation
            pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
            assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(young)) == ("4-7", "2-3")


@pytest.mark.parametrize(("in_its_cgroup", "starts"), [("4-7", True), ("0-7", False)])
async def test_after_the_agents_restart_a_claims_container_starts_by_what_its_cgroup_has(
    in_its_cgroup: str, starts: bool
) -> None:
    with directory() as root:
        tree = write_tree(LAB, root)
        cgroups = tree[0] / "fs/cgroup"
        for cgroup in (cgroups, cgroups / "kubepods"):
            write_cgroup(cgroup, "0-7")
        async with whole_node(tree=tree) as node:
            node.claim(claim_object(1, [share(NUMA1, 4)]))
            await node.kubelet.prepare_one(ref(1))
            async with starting(node, Moment.CGROUP_WRITTEN, cdi(1)) as (halt, creation):
                (young,) = node.runtime.containers.values()
                uid_of_pod = young.pod.message().uid
                write_cgroup(cgroups / f"kubepods/pod{uid_of_pod}/{young.id}", limit=in_its_cgroup)
                await node.stop_agent()
                await node.start_agent()
                await node.runtime.synchronized()
                halt.over.set()
                if starts:
                    assert await creation == young.id
                else:
                    with pytest.raises(HookError, match=f'young would start on CPUs "{in_its_cgroup}"'):
                        await creation


async def test_a_container_whose_start_began_without_an_agent_starts_and_leaves_the_cpus_of_claims() -> None:
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 4)]))
        await node.kubelet.prepare_one(ref(1))
        await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        await node.stop_agent()
        async with starting(node, Moment.CGROUP_WRITTEN) as (halt, creation):
            await node.start_agent()
            await node.runtime.synchronized()
            halt.over.set()
            young = await creation
            await node.runtime.until(lambda: node.runtime.cpuset_of(young) == "2-3")


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

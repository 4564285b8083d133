"""The whole agent with more containers, and other kinds of containers, than most tests have."""

from functools import partial

import pytest
from nodes import claim_object, ref, share, uid
from whole_agent import whole_node

from dracpu_agent.runtime import plugin
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_sandbox.node.containers import Container, PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime
from dracpu_sandbox.node.plugins import KubeletError

NUMA1 = "cpudevnuma001"
CDI = f"dra.k8s.io/cpu=claim-{uid(1)}"


async def test_shared_containers_leave_the_cpus_of_a_claim_before_its_container_is_created() -> None:
    async with whole_node() as node:
        shared = await node.runtime.create_container(node.pod(), "shared")
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-3,6-7")


async def test_a_restarted_container_keeps_its_cpus_although_its_predecessor_is_removed_late() -> None:
    async with whole_node() as node:
        for number, amount in ((1, 2), (2, 4)):
            node.claim(claim_object(number, [share(NUMA1, amount)]))
        await node.kubelet.prepare_one(ref(1))
        pod = node.pod()
        former = await node.runtime.create_container(pod, "main", cdi_devices=[CDI])
        await node.runtime.stop_container(former)
        restarted = await node.runtime.create_container(pod, "main", cdi_devices=[CDI])  # without another Prepare
        await node.runtime.stop_container(former)
        await node.runtime.remove_container(former)
        assert node.runtime.cpuset_of(restarted) == "4-5"
        await node.kubelet.unprepare_one(ref(1))
        with pytest.raises(KubeletError):  # the CPUs are not free while the container runs
            await node.kubelet.prepare_one(ref(2))
        await node.runtime.stop_container(restarted)
        await node.kubelet.prepare_one(ref(2))


async def test_a_container_that_the_runtimes_first_list_lacks_is_found_in_a_second_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(runtime: NriRuntime, missed: Container) -> None:
        """The container starts after the first list was made, and no event about it is sent."""
        runtime.version = "v2.0.2"  # later versions let no container start meanwhile
        runtime.before_chunk = lambda _: runtime.containers.update({missed.id: missed})

    monkeypatch.setattr(plugin, "ReconnectDelays", partial(plugin.ReconnectDelays, list_again=0.01))
    async with whole_node() as node:
        await node.stop_agent()
        missed = Container("missed", node.pod(), "main", state=nri.CONTAINER_RUNNING, cgroup_cpus="", stored=True)
        connect(node.runtime, missed)
        await node.start_agent()
        await node.runtime.until(lambda: node.runtime.cpuset_of("missed") == "2-7")


async def test_a_node_with_500_containers_is_repaired_when_the_agent_connects() -> None:
    def unpinned(number: int) -> Container:
        pod = PodSandbox(f"old-{number}")
        return Container(
            f"old-{number}", pod, "app", state=nri.CONTAINER_RUNNING, cgroup_cpus="", stored=True, ballast=4_000
        )

    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[CDI])
        await node.runtime.stop()
        old = [unpinned(number) for number in range(500)]
        node.runtime.containers.update({container.id: container for container in old})
        await node.runtime.start()
        await node.runtime.until(lambda: {container.cpus for container in old} == {"2-3,6-7"})
        assert node.runtime.cpuset_of(pinned) == "4-5"


async def test_an_ephemeral_container_in_the_pod_of_a_claim_runs_on_shared_cpus() -> None:
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        pod = node.pod()
        pinned = await node.runtime.create_container(pod, "pinned", cdi_devices=[CDI])
        debugger = await node.runtime.create_container(pod, "debugger")  # the kubelet gives it no claims
        assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(debugger)) == ("4-5", "2-3,6-7")
        await node.runtime.stop_container(debugger)
        assert node.runtime.cpuset_of(pinned) == "4-5"

"""The whole agent with containerd 1.7, which reports most events as StateChange, passes on no CDI devices, and must not
be sent updates outside of a hook. There a container proves its claim by the environment that the CDI file sets."""

import asyncio
from pathlib import Path

import pytest
from nodes import claim_object, ref, share, uid
from whole_agent import WholeNode, whole_node

from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime

NUMA1 = "cpudevnuma001"


def old_runtime(socket: Path) -> NriRuntime:
    runtime = NriRuntime(socket, version="v1.7.27", nri_version="")
    runtime.own_methods = runtime.passes_cdi_devices = False
    return runtime


def env(number: int, cpus: str) -> list[str]:
    return [f"DRA_CPUSET_{uid(number)}={cpus}"]


def join(node: WholeNode, number: int, pod: PodSandbox) -> None:
    """Reserves a claim for one more pod, as the scheduler does."""
    node.api.edit(
        "resourceclaims",
        f"default/{ref(number).name}",
        lambda claim: claim["status"]["reservedFor"].append({"resource": "pods", "name": pod.name, "uid": pod.uid}),
    )


async def test_a_claims_container_moves_others_and_they_get_its_cpus_back_with_a_later_hook() -> None:
    async with whole_node(runtime_at=old_runtime) as node:
        shared = await node.runtime.create_container(node.pod(), "shared")
        assert node.runtime.cpuset_of(shared) == "2-7"
        owner = node.pod()
        node.claim(claim_object(1, [share(NUMA1, 2)], pods=[owner.uid]))
        await node.kubelet.prepare_one(ref(1))
        pinned = await node.runtime.create_container(owner, "pinned", env=env(1, "4-5"))
        assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(shared)) == ("4-5", "2-3,6-7")

        await node.runtime.stop_container(pinned)
        await node.kubelet.unprepare_one(ref(1))
        assert node.runtime.cpuset_of(shared) == "2-3,6-7"
        later = await node.runtime.create_container(node.pod(), "later")
        assert (node.runtime.cpuset_of(later), node.runtime.cpuset_of(shared)) == ("2-7", "2-7")
        _, metrics = await node.probe("/metrics")
        assert 'dra_cpu_pool_pushes_total{result="success"} 0' in metrics
        assert 'dra_cpu_pool_pushes_total{result="error"} 0' in metrics


async def test_a_second_pod_that_joins_a_prepared_claim_is_pinned() -> None:
    async with whole_node(runtime_at=old_runtime) as node:
        owner, second = node.pod(), node.pod()
        node.claim(claim_object(1, [share(NUMA1, 2)], pods=[owner.uid]))
        await node.kubelet.prepare_one(ref(1))
        join(node, 1, second)  # the kubelet does not prepare the claim again
        joined = await node.runtime.create_container(second, "joined", env=env(1, "4-5"))
        assert node.runtime.cpuset_of(joined) == "4-5"


async def test_a_pod_that_sets_the_variable_of_another_pods_claim_does_not_start() -> None:
    async with whole_node(runtime_at=old_runtime) as node:
        owner, forger = node.pod(), node.pod()
        node.claim(claim_object(1, [share(NUMA1, 2)], pods=[owner.uid]))
        await node.kubelet.prepare_one(ref(1))
        for forged, reason in (
            (env(1, "4-5"), "is not among the pods of the claim"),
            (env(1, "4-7"), "pods must not set variables"),
            (env(2, "6-7"), "pods must not set variables"),
        ):
            with pytest.raises(HookError, match=reason):
                await node.runtime.create_container(forger, "forger", env=forged)
        stranger = PodSandbox(owner.name, namespace="other", uid=owner.uid)
        with pytest.raises(HookError, match="not a claim prepared for its namespace"):
            await node.runtime.create_container(stranger, "stranger", env=env(1, "4-5"))


async def test_a_restarted_agent_pins_what_was_created_meanwhile_and_trusts_no_forger() -> None:
    async with whole_node(runtime_at=old_runtime) as node:
        owner, second = node.pod(), node.pod()
        node.claim(claim_object(1, [share(NUMA1, 2)], pods=[owner.uid]))
        await node.kubelet.prepare_one(ref(1))
        pinned = await node.runtime.create_container(owner, "pinned", env=env(1, "4-5"))
        await node.stop_agent()
        join(node, 1, second)
        joined = await node.runtime.create_container(second, "joined", env=env(1, "4-5"))
        forger = await node.runtime.create_container(node.pod(), "forger", env=env(1, "4-5"))
        stray = await node.runtime.create_container(node.pod(), "stray")
        await node.start_agent()
        await node.runtime.until(lambda: node.runtime.cpuset_of(stray) == "2-3,6-7")
        assert node.runtime.cpuset_of(pinned) == "4-5"
        assert node.runtime.cpuset_of(forger) == "2-3,6-7"
        async with asyncio.timeout(30):
            while node.runtime.cpuset_of(joined) != "4-5":  # a hook's reply moves it once its claim was read
                await node.runtime.create_container(node.pod(), "later")
        assert node.runtime.cpuset_of(forger) == "2-3,6-7"


async def test_a_refused_resize_does_not_leave_a_container_on_a_claims_cpus() -> None:
    async with whole_node(runtime_at=old_runtime) as node:
        shared = await node.runtime.create_container(node.pod(), "shared")
        owner = node.pod()
        node.claim(claim_object(1, [share(NUMA1, 4)], pods=[owner.uid]))
        await node.kubelet.prepare_one(ref(1))
        node.runtime.containerd.failing_updates.add(shared)
        with pytest.raises(HookError, match="cannot be written"):
            await node.runtime.update_container(shared)
        node.runtime.containerd.failing_updates.clear()
        assert node.runtime.cpuset_of(shared) == "2-7"
        pinned = await node.runtime.create_container(owner, "pinned", env=env(1, "4-7"))
        assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(shared)) == ("4-7", "2-3")

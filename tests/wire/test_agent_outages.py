"""The whole agent while the runtime hangs, while it is terminated, and after its files were lost."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fake_kubelet import FakeKubelet
from nodes import claim_object, ref, share, uid
from whole_agent import WholeNode, whole_node

from dracpu_agent.work import pinning
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.plugins import KubeletError

NUMA1 = "cpudevnuma001"


def cdi(number: int) -> str:
    return f"dra.k8s.io/cpu=claim-{uid(number)}"


@asynccontextmanager
async def busy_with_growth(node: WholeNode) -> AsyncIterator[str]:
    """A container without claims, while the runtime does not answer the update that gives it CPUs 6-7 back."""
    shared = await node.runtime.create_container(node.pod(), "shared")
    for number in (1, 2):
        node.claim(claim_object(number, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(number))
    await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-3")
    async with node.runtime.busy():
        await node.kubelet.unprepare_one(ref(2))
        yield shared


async def test_a_claim_is_prepared_only_after_an_update_under_way_that_names_its_cpus() -> None:
    async with whole_node() as node:
        node.claim(claim_object(3, [share(NUMA1, 2)]))
        async with busy_with_growth(node) as shared:
            preparation = asyncio.create_task(node.kubelet.prepare_one(ref(3)))
            await node.granted(3)
            await node.kubelet.prepare_one(ref(1))  # its CPUs are not in the update, so that it does not wait
            assert not preparation.done()
        await preparation
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(3)])
        assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(shared)) == ("6-7", "2-3")


async def test_a_claim_is_refused_while_the_runtime_hangs_and_gets_its_cpus_when_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pinning, "PUSH_SECONDS", 0.01)
    async with whole_node() as node:
        node.claim(claim_object(3, [share(NUMA1, 2)]))
        async with busy_with_growth(node) as shared:
            with pytest.raises(KubeletError, match="the container runtime has not answered an update"):
                await node.kubelet.prepare_one(ref(3))
        await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-3,6-7")  # nothing is held for the claim
        await node.kubelet.prepare_one(ref(3))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(3)])
        assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(shared)) == ("6-7", "2-3")


async def test_a_claim_that_is_being_prepared_at_sigterm_is_answered_and_kept() -> None:
    async with whole_node() as node:
        for number in (1, 2):
            node.claim(claim_object(number, [share(NUMA1, 2)]))
        node.api.pause()
        reads = len(node.api.requests)
        preparation = asyncio.create_task(node.kubelet.prepare_one(ref(1)))
        await node.api.until(lambda: any("resourceclaims" in str(request) for request in node.api.requests[reads:]))
        node.terminate_agent()
        await FakeKubelet(node.root).deregistered("dra.cpu")
        node.api.resume()
        prepared = await preparation
        await node.stop_agent()
        assert node.runtime.connections == 1  # an agent that ends does not connect again
        await node.start_agent()
        await node.kubelet.prepare_one(ref(2))
        assert await node.kubelet.prepare_one(ref(1)) == prepared
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        assert node.runtime.cpuset_of(pinned) == "4-5"


async def test_a_restarted_agent_prepares_claims_before_it_can_publish_its_slices() -> None:
    async with whole_node() as node:
        for number in (1, 2):
            node.claim(claim_object(number, [share(NUMA1, 2)]))
        prepared = await node.kubelet.prepare_one(ref(1))
        await node.stop_agent()
        node.api.fail("(GET|POST|PUT) resourceslices", 503, times=10_000)
        await node.start_agent()
        await node.kubelet.prepare_one(ref(2))
        assert await node.kubelet.prepare_one(ref(1)) == prepared
        for number, expected in ((1, "4-5"), (2, "6-7")):
            pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(number)])
            assert node.runtime.cpuset_of(pinned) == expected


async def test_an_agent_that_has_lost_all_its_files_shares_the_cpus_of_a_forgotten_claim_but_no_claims() -> None:
    async with whole_node() as node:
        for number in (1, 2):
            node.claim(claim_object(number, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        forgotten = await node.runtime.create_container(node.pod(), "forgotten", cdi_devices=[cdi(1)])
        await node.stop_agent()
        for folder in ("state", "cdi"):
            shutil.rmtree(node.root / folder)
        await node.start_agent()
        await node.runtime.until(lambda: node.runtime.cpuset_of(forgotten) == "2-7")

        await node.kubelet.prepare_one(ref(2))
        second = await node.runtime.create_container(node.pod(), "second", cdi_devices=[cdi(2)])
        assert (node.runtime.cpuset_of(second), node.runtime.cpuset_of(forgotten)) == ("4-5", "2-3,6-7")
        with pytest.raises(HookError, match="is not prepared on this node"):
            await node.runtime.create_container(node.pod(), "restarted", cdi_devices=[cdi(1)])
        await node.kubelet.prepare_one(ref(1))  # a kubelet that has restarted prepares the claims of its pods again
        await node.runtime.until(lambda: node.runtime.cpuset_of(forgotten) == "2-3")
        await node.runtime.stop_container(forgotten)
        restarted = await node.runtime.create_container(node.pod(), "restarted", cdi_devices=[cdi(1)])
        assert (node.runtime.cpuset_of(restarted), node.runtime.cpuset_of(second)) == ("6-7", "4-5")
        await node.kubelet.unprepare_one(ref(1))

"""The metrics that a running agent serves follow its claims, also over a restart."""

import asyncio
import re

import pytest
from nodes import claim_object, ref, share, uid
from whole_agent import WholeNode, whole_node

from dracpu_sandbox.node.plugins import KubeletError

NUMA1 = "cpudevnuma001"


async def metrics(node: WholeNode) -> dict[str, float]:
    """Scrapes the agent: the values of its own metrics by name and labels."""
    status, text = await node.probe("/metrics")
    assert status == 200
    return {name: float(value) for name, value in re.findall(r"^(dra_cpu_\S+) (\S+)$", text, re.MULTILINE)}


async def show(node: WholeNode, *, allocated: int, available: int, claims: int, lingering: int) -> None:
    """Scrapes until the gauges have these values: they follow shortly after the change."""
    expected = {
        "dra_cpu_allocated_cpus": allocated,
        "dra_cpu_available_cpus": available,
        "dra_cpu_resource_claims_active": claims,
        "dra_cpu_lingering_claims": lingering,
    }
    async with asyncio.timeout(30):
        while not expected.items() <= (await metrics(node)).items():
            pass


async def test_the_gauges_follow_prepare_restart_lingering_and_unprepare() -> None:
    async with whole_node() as node:
        await show(node, allocated=0, available=6, claims=0, lingering=0)
        for number in (1, 2):
            node.claim(claim_object(number, [share(NUMA1, 2)]))
            await node.kubelet.prepare_one(ref(number))
        await node.kubelet.prepare_one(ref(1))  # the kubelet may repeat a call
        await show(node, allocated=4, available=2, claims=2, lingering=0)

        cdi = f"dra.k8s.io/cpu=claim-{uid(1)}"
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi])
        await node.stop_agent()
        await node.start_agent()
        await show(node, allocated=4, available=2, claims=2, lingering=0)
        for number in (1, 2):
            await node.kubelet.unprepare_one(ref(number))
        await show(node, allocated=2, available=4, claims=1, lingering=1)
        await node.runtime.stop_container(pinned)
        await show(node, allocated=0, available=6, claims=0, lingering=0)


async def test_calls_are_counted_by_their_result_and_connections_are_shown() -> None:
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        node.claim(claim_object(2, [share(NUMA1, 4)]))
        await node.kubelet.prepare_one(ref(1))
        with pytest.raises(KubeletError):
            await node.kubelet.prepare_one(ref(2))
        await node.kubelet.unprepare_one(ref(2))
        found = await metrics(node)
        for name, value in {
            'prepare_claims_total{result="success"}': 1,
            'prepare_claims_total{result="error"}': 1,
            'unprepare_claims_total{result="success"}': 1,
            "claim_allocated_cpus_sum": 2,
            "nri_connected": 1,
            "kubelet_registered": 1,
            "slices_published": 1,
        }.items():
            assert found[f"dra_cpu_{name}"] == value, name

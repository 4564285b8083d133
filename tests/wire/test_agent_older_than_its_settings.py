"""The whole agent after a downgrade: its CpuNode has settings that only the newer agent can decode, or knows."""

from typing import Any

import pytest
from newer_agent import rewritten
from nodes import NODE, claim_object, ref, share
from whole_agent import WholeNode, whole_node

from dracpu_sandbox.node.plugins import KubeletError

NUMA1 = "cpudevnuma001"


async def a_newer_agent_was_here(node: WholeNode) -> None:
    """Ends the agent, and changes the CpuNode and the checkpoint so that this agent cannot decode their settings."""

    def change(record: dict[str, Any]) -> None:
        record["spec"]["settings"]["mode"] = "weighted"

    await node.stop_agent()
    checkpoint = node.root / "state" / "checkpoint.json"
    checkpoint.write_bytes(rewritten(checkpoint.read_bytes(), change))
    node.api.edit("cpunodes", NODE, change)


async def test_devices_of_a_newer_agent_stay_published_while_its_settings_cannot_be_decoded() -> None:
    async with whole_node() as node:
        for number in (1, 2):
            node.claim(claim_object(number, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        await a_newer_agent_was_here(node)
        slices = node.api.all("resourceslices")
        assert slices

        await node.start_agent()
        await node.api.until(lambda: node.status["phase"] == "Failed")
        assert "published devices stay" in node.condition("ConfigApplied")["message"]
        await node.kubelet.prepare_one(ref(1))
        with pytest.raises(KubeletError, match="the condition ConfigApplied of its CpuNode says why"):
            await node.kubelet.prepare_one(ref(2))
        assert node.api.all("resourceslices") == slices

        node.api.edit("cpunodes", NODE, lambda record: record["spec"]["settings"].update(mode="grouped"))
        await node.ready()
        await node.kubelet.prepare_one(ref(2))
        assert node.api.all("resourceslices") == slices


async def test_these_devices_are_withdrawn_when_the_cpunode_is_deleted() -> None:
    async with whole_node() as node:
        await a_newer_agent_was_here(node)
        await node.start_agent()
        node.api.remove("cpunodes", NODE)
        await node.api.until(lambda: not node.api.all("resourceslices"))

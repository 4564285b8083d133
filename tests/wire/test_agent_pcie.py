"""PCIe roots are published in slices, and a claim gets CPUs close to the devices of other drivers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from dra_objects import slice_of
from nodes import NODE, claim_object, machine, ref, share, spec
from whole_agent import WholeNode, whole_node

from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import CpuNodeSpec, GroupBy
from dracpu_sandbox.apiserver.kinds.gates import LIST_ATTRIBUTES

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
TWO_ROOTS: Topology = replace(
    machine(), pcie_roots={"pci0000:00": CpuSet.parse("0-3"), "pci0000:80": CpuSet.parse("4-7")}
)


def exposing() -> CpuNodeSpec:
    grouped = spec(group_by=GroupBy.MACHINE)
    return replace(grouped, settings=replace(grouped.settings, expose_pcie_roots=True))


@asynccontextmanager
async def node_with_roots() -> AsyncIterator[WholeNode]:
    async with whole_node(exposing(), TWO_ROOTS, gates=[LIST_ATTRIBUTES]) as node:
        yield node


def add_nic(node: WholeNode, root: str) -> None:
    nic = {"name": "nic-0", "attributes": {PCIE_ROOT: {"string": root}}}
    node.api.add("resourceslices", slice_of(NODE, [nic], driver="dra.net"))


def with_nic(number: int) -> dict[str, Any]:
    """A claim for two CPUs and a network card at one PCIe root."""
    nic = {"request": "nic", "driver": "dra.net", "pool": NODE, "device": "nic-0"}
    made = claim_object(number, [share("cpudevmachine", 2, "cpus"), nic])
    made["spec"]["devices"]["constraints"] = [{"requests": ["cpus", "nic"], "matchAttribute": PCIE_ROOT}]
    return made


async def cpus_of(node: WholeNode, number: int) -> str:
    await node.kubelet.prepare_one(ref(number))
    name = f"default/claim-{number}"
    await node.api.until(lambda: node.api.get("resourceclaims", name)["status"].get("devices"))
    return str(node.api.get("resourceclaims", name)["status"]["devices"][0]["data"]["cpuset"])


async def test_a_group_has_the_roots_that_it_is_close_to_as_attribute():
    async with node_with_roots() as node:
        assert node.devices()["cpudevmachine"]["attributes"][PCIE_ROOT] == {"strings": ["pci0000:00", "pci0000:80"]}


async def test_a_claim_with_a_network_card_gets_the_cpus_close_to_it():
    async with node_with_roots() as node:
        add_nic(node, "pci0000:80")
        node.claim(with_nic(1))
        assert await cpus_of(node, 1) == "4-5"


async def test_a_claim_is_prepared_even_if_the_root_of_its_network_card_cannot_be_read():
    async with node_with_roots() as node:
        node.claim(with_nic(1))
        assert len(CpuSet.parse(await cpus_of(node, 1))) == 2
        node.api.fail("GET resourceslices", 403)
        node.claim(with_nic(2))
        assert len(CpuSet.parse(await cpus_of(node, 2))) == 2

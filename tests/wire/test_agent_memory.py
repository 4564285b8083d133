"""The whole agent with the driver of memory, connected to a kubelet, a runtime and an API server."""

import json
from typing import Any

from nodes import NODE, claim_object, machine, ref, share, spec, uid
from whole_agent import WholeNode, whole_node

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings

DRIVER = "dra.memory"
ENABLED = spec(memory=MemorySettings(enabled=True))
MI, GI = 1024**2, 1024**3


def inventory(small: int = 16) -> Inventory:
    """Two NUMA nodes of 4 GiB; the first has pages of both sizes."""
    pages = (Pages(2 * MI, small, small), Pages(GI, 1, 1))
    first = NumaMemory(0, CpuSet((0, 1, 2, 3)), 4 * GI, 4, pages)
    return Inventory((first, NumaMemory(1, CpuSet((4, 5, 6, 7)), 4 * GI, 4, ())))


def drivers() -> tuple[MemoryDriver]:
    driver = MemoryDriver(NODE, inventory(), machine())
    driver.system = 0
    return (driver,)


def offered(node: WholeNode) -> dict[str, str]:
    slices = [item["spec"] for item in node.api.all("resourceslices") if item["spec"]["driver"] == DRIVER]
    devices = [device for found in slices for device in found.get("devices") or ()]
    return {device["name"]: device["capacity"]["size"]["value"] for device in devices}


def some(device: str, size: str, request: str = "main") -> dict[str, Any]:
    return share(device, 1, request) | {"driver": DRIVER, "consumedCapacity": {"size": size}}


async def test_memory_is_published_in_slices_of_its_own() -> None:
    async with whole_node(settings=ENABLED, others=drivers) as node:
        await node.api.until(
            lambda: (
                set(offered(node))
                == {"memory-numa000", "memory-numa001", "hugepages-2mi-numa000", "hugepages-1gi-numa000"}
            )
        )
        assert (offered(node)["hugepages-2mi-numa000"], offered(node)["hugepages-1gi-numa000"]) == ("32Mi", "1Gi")


async def test_a_claim_with_cpus_memory_and_pages_is_prepared_and_given_back() -> None:
    async with whole_node(settings=ENABLED, others=drivers) as node:
        parts = [some("memory-numa001", "1Gi", "memory"), some("hugepages-2mi-numa000", "32Mi", "pages")]
        node.claim(claim_object(1, [share("cpudevnuma001", 2, "cpus"), *parts]))
        (cpus,) = await node.kubelet.prepare_one(ref(1))
        memory, pages = await node.plugins[DRIVER].prepare_one(ref(1))
        assert [device.cdi_ids for device in (cpus, memory, pages)] == [
            (f"dra.k8s.io/cpu=claim-{uid(1)}",),
            (f"dra.k8s.io/memory=claim-{uid(1)}-memory",),
            (f"dra.k8s.io/memory=claim-{uid(1)}-pages",),
        ]
        (file,) = (node.root / "cdi").glob("dra.k8s.io-memory_*.json")
        edits = {device["name"]: device["containerEdits"]["env"] for device in json.loads(file.read_text())["devices"]}
        assert edits[f"claim-{uid(1)}-pages"] == [
            f"DRAMEMORY_{uid(1)}_pages_hugepages_2Mi=numanode:0,size:32Mi",
            f"DRAMEMORY_{uid(1)}_pages_NUMANodes=0",
        ]
        claim = f"default/{ref(1).name}"
        await node.api.until(lambda: len(node.api.get("resourceclaims", claim)["status"].get("devices") or ()) == 3)
        data = [entry["data"] for entry in node.api.get("resourceclaims", claim)["status"]["devices"]]
        assert {"numaNode": 1, "kind": "memory", "size": "1Gi"} in data
        await node.stop_agent()
        await node.start_agent()
        assert await node.plugins[DRIVER].prepare_one(ref(1)) == (memory, pages)
        await node.plugins[DRIVER].unprepare_one(ref(1))
        assert not file.exists()


async def test_pages_that_are_taken_away_are_not_offered_any_more() -> None:
    async with whole_node(settings=ENABLED, others=drivers) as node:
        node.claim(claim_object(1, [some("hugepages-2mi-numa000", "16Mi")]))
        await node.plugins[DRIVER].prepare_one(ref(1))
        assert node.agent is not None
        driver = node.agent.node.holdings[DRIVER].driver
        assert isinstance(driver, MemoryDriver)
        driver.inventory = inventory(small=2)
        node.agent.node.refresh()
        await node.api.until(lambda: offered(node)["hugepages-2mi-numa000"] == "16Mi")
        health = node.plugins[DRIVER].watch_health()
        lost = {device.device.device_name for device in await anext(health) if device.message}
        assert lost == {"hugepages-2mi-numa000"}
        await health.aclose()


async def test_memory_is_published_after_a_restart_whose_cpus_refuse_the_settings() -> None:
    pages = 16

    def with_pages() -> tuple[MemoryDriver]:
        driver = MemoryDriver(NODE, inventory(pages), machine())
        driver.system = 0
        return (driver,)

    settings = spec(reserved="7", memory=MemorySettings(enabled=True))
    async with whole_node(settings=settings, others=with_pages) as node:
        await node.api.until(lambda: offered(node).get("hugepages-2mi-numa000") == "32Mi")
        await node.stop_agent()
        pages, node.topology = 8, machine(sockets=1)
        await node.start_agent()
        await node.api.until(lambda: "names CPU 7" in node.condition("ConfigApplied").get("message", ""))
        await node.api.until(lambda: offered(node).get("hugepages-2mi-numa000") == "16Mi")
        node.claim(claim_object(1, [some("hugepages-2mi-numa000", "16Mi")]))
        await node.plugins[DRIVER].prepare_one(ref(1))

"""A claim with devices of two drivers, of which the other one fails after ours has prepared the claim."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from nodes import NODE, share, uid
from one_node import OneNode, one_node

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_agent.errors import ClaimError
from dracpu_agent.kubelet.health import DeviceHealth
from dracpu_agent.kubelet.plugin import KubeletPlugin

NUMA1 = "cpudevnuma001"
OTHER = "nic.example.com"


class OtherDriver:
    """A driver of network cards that refuses claims while it is broken."""

    def __init__(self) -> None:
        self.broken = True
        self.unprepared: list[str] = []
        self.cdi_ids: tuple[str, ...] = ()

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        if self.broken:
            raise ClaimError("the card does not answer")
        return (PreparedDevice(("card",), NODE, "nic0", None, self.cdi_ids),)

    async def unprepare(self, claim: ClaimRef) -> None:
        self.unprepared.append(claim.name)

    def snapshot(self) -> Sequence[DeviceHealth]:
        return ()


@asynccontextmanager
async def a_pod_that_waits_for_the_other_driver() -> AsyncIterator[tuple[OneNode, OtherDriver]]:
    card: dict[str, Any] = {"request": "card", "driver": OTHER, "pool": NODE, "device": "nic0"}
    async with one_node() as world:
        driver = OtherDriver()
        plugin = KubeletPlugin(OTHER, world.node.root / "kubelet", driver, driver, lambda status: None)
        await plugin.start()
        try:
            world.pod("web")
            await world.runs("web")
            world.claim(1, [share(NUMA1, 4), card], "db")
            world.pod("db", {"both": "claim-1"})
            await world.api.until(lambda: "does not answer" in str(world.events("FailedPrepareDynamicResources")))
            await world.api.until(lambda: world.pinned("web") == "main: 2-3")  # our driver has granted the CPUs
            yield world, driver
        finally:
            await plugin.stop()


async def test_the_claim_is_prepared_again_when_the_other_driver_has_recovered() -> None:
    async with a_pod_that_waits_for_the_other_driver() as (world, other):
        other.broken = False
        await world.runs("db")
        assert world.pinned("db") == "main: 4-7"


async def test_the_cpus_are_free_again_after_the_pod_was_deleted_before_it_started() -> None:
    async with a_pod_that_waits_for_the_other_driver() as (world, other):
        world.delete("db")
        await world.gone("db")
        assert other.unprepared == ["claim-1"]
        await world.api.until(lambda: world.pinned("web") == "main: 2-7")
        world.claim(2, [share(NUMA1, 4)], "next")
        world.pod("next", {"cpus": "claim-2"})
        await world.runs("next")
        assert world.pinned("next") == "main: 4-7"


async def test_a_container_gets_what_the_cdi_devices_of_both_drivers_add() -> None:
    async with a_pod_that_waits_for_the_other_driver() as (world, other):
        card = {"name": "nic0", "containerEdits": {"env": ["CARD=nic0"]}}
        spec = {"cdiVersion": "0.8.0", "kind": "example.com/nic", "devices": [card]}
        (world.node.root / "run/cdi/nic.json").write_text(json.dumps(spec))
        other.cdi_ids, other.broken = ("example.com/nic=nic0",), False
        await world.runs("db")
        environment = world.node.environment_of("default", "db", "main")
        assert {"CARD": "nic0", f"DRA_CPUSET_{uid(1)}": "4-7"}.items() <= environment.items()

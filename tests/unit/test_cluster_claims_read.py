"""The PCIe roots of a claim's other devices are read from the slices of their drivers."""

import asyncio
from typing import Any

import pytest
from dra_objects import slice_of
from nodes import NODE, claim_object, share

from dracpu_agent.cluster.claims import ApiClaimReader
from dracpu_api.errors import ApiError, UnavailableError

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"


class Slices:
    """The API server's slices: for each driver the PCIe root of its device, an error, or None for no answer."""

    def __init__(self, **roots: str | ApiError | None) -> None:
        self._roots = roots
        self.listed: list[str] = []

    async def list(self, _resource: object, *, field_selector: str) -> dict[str, Any]:
        on_node, driver = field_selector.split(",spec.driver=")
        assert on_node == f"spec.nodeName={NODE}"
        self.listed.append(driver)
        root = self._roots[driver]
        if root is None:
            await asyncio.Event().wait()
        if isinstance(root, ApiError):
            raise root
        device = {"name": "dev", "attributes": {PCIE_ROOT: {"string": root}}}
        return {"items": [slice_of(NODE, [device], driver=driver)]}


def claim(*constraints: list[str]) -> dict[str, Any]:
    """A claim with requests for our driver and for drivers named like their requests, and with these constraints."""
    others = sorted({request for requests in constraints for request in requests} - {"cpus", "more"})
    results = [share("cpudevmachine", 2, "cpus"), share("cpudevmachine", 2, "more", 1)]
    results += [{"request": name, "driver": name, "pool": NODE, "device": "dev"} for name in others]
    matched = [{"requests": requests, "matchAttribute": PCIE_ROOT} for requests in constraints]
    return claim_object(1, results) | {"spec": {"devices": {"constraints": matched}}}


async def roots(slices: Slices, claim: dict[str, Any], seconds: float = 30) -> dict[str, set[str]]:
    reader = ApiClaimReader(slices, NODE, neighbours_seconds=seconds)  # type: ignore[arg-type]
    return {request: set(found) for request, found in (await reader.roots_beside(claim)).items()}


async def test_no_slices_are_listed_for_a_claim_without_constraints():
    slices = Slices()
    assert await roots(slices, claim()) == {}
    assert slices.listed == []


async def test_slices_of_each_driver_are_listed_once():
    slices = Slices(nic="pci0000:80", gpu="pci0000:00")
    found = await roots(slices, claim(["cpus", "nic"], ["more", "gpu"], ["cpus", "more", "nic"]))
    assert found == {"cpus": {"pci0000:80"}, "more": set()}  # no root serves both of its constraints
    assert sorted(slices.listed) == ["gpu", "nic"]


async def test_the_time_limit_is_for_all_drivers_together_and_roots_read_in_time_are_used():
    slices = Slices(a="pci0000:00", b=None, c=None)
    found = await roots(slices, claim(["cpus", "a"], ["more", "b"], ["more", "c"]), seconds=0.01)
    assert found == {"cpus": {"pci0000:00"}, "more": set()}
    assert slices.listed == ["a", "b"], "one time limit for all drivers"


@pytest.mark.parametrize("broken", ["a", "b"])
async def test_a_driver_whose_slices_cannot_be_read_is_left_out(broken):
    known = {"a": "pci0000:00", "b": "pci0000:80"} | {broken: UnavailableError("away")}
    found = await roots(Slices(**known), claim(["cpus", "a"], ["more", "b"]))
    other = {"a": ("more", "pci0000:80"), "b": ("cpus", "pci0000:00")}[broken]
    assert found == {"cpus": set(), "more": set()} | {other[0]: {other[1]}}

"""What a claim's transactions ask the API server; its list of slices is played by a dictionary."""

import asyncio
from typing import Any

import pytest
from dra_objects import slice_of
from nodes import NODE, claim_object, share

from dracpu_agent.cluster.claims import ApiClaimReader
from dracpu_api.errors import ApiError, UnavailableError

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"


class Slices:
    """Driver -> PCIe root of its device; an error is raised, None is never answered."""

    def __init__(self, **roots: str | ApiError | None) -> None:
        self._roots = roots
        self.asked: list[str] = []

    async def list(self, _resource: object, *, field_selector: str) -> dict[str, Any]:
        on_node, driver = field_selector.split(",spec.driver=")
        assert on_node == f"spec.nodeName={NODE}"
        self.asked.append(driver)
        root = self._roots[driver]
        if root is None:
            await asyncio.Event().wait()
        if isinstance(root, ApiError):
            raise root
        device = {"name": "dev", "attributes": {PCIE_ROOT: {"string": root}}}
        return {"items": [slice_of(NODE, [device], driver=driver)]}


def claim(*constraints: list[str]) -> dict[str, Any]:
    """Requests of ours and of drivers that are called like their requests, and which of them are matched."""
    others = sorted({request for requests in constraints for request in requests} - {"cpus", "more"})
    results = [share("cpudevmachine", 2, "cpus"), share("cpudevmachine", 2, "more", 1)]
    results += [{"request": name, "driver": name, "pool": NODE, "device": "dev"} for name in others]
    matched = [{"requests": requests, "matchAttribute": PCIE_ROOT} for requests in constraints]
    return claim_object(1, results) | {"spec": {"devices": {"constraints": matched}}}


async def roots(slices: Slices, claim: dict[str, Any], seconds: float = 30) -> dict[str, set[str]]:
    reader = ApiClaimReader(slices, NODE, neighbours_seconds=seconds)  # type: ignore[arg-type]
    return {request: set(found) for request, found in (await reader.roots_beside(claim)).items()}


async def test_a_claim_without_such_constraints_asks_nothing():
    slices = Slices()
    assert await roots(slices, claim()) == {}
    assert slices.asked == []


async def test_each_driver_is_asked_once_however_many_constraints_name_it():
    slices = Slices(nic="pci0000:80", gpu="pci0000:00")
    found = await roots(slices, claim(["cpus", "nic"], ["more", "gpu"], ["cpus", "more", "nic"]))
    assert found == {"cpus": {"pci0000:80"}, "more": set()}  # no root serves both of its constraints
    assert sorted(slices.asked) == ["gpu", "nic"]


async def test_drivers_share_the_time_and_what_is_known_by_then_counts():
    slices = Slices(a="pci0000:00", b=None, c=None)
    found = await roots(slices, claim(["cpus", "a"], ["more", "b"], ["more", "c"]), seconds=0.01)
    assert found == {"cpus": {"pci0000:00"}, "more": set()}
    assert slices.asked == ["a", "b"], "the kubelet does not wait for one after the other"


@pytest.mark.parametrize("broken", ["a", "b"])
async def test_a_driver_whose_slices_cannot_be_read_has_no_say(broken):
    known = {"a": "pci0000:00", "b": "pci0000:80"} | {broken: UnavailableError("away")}
    found = await roots(Slices(**known), claim(["cpus", "a"], ["more", "b"]))
    other = {"a": ("more", "pci0000:80"), "b": ("cpus", "pci0000:00")}[broken]
    assert found == {"cpus": set(), "more": set()} | {other[0]: {other[1]}}

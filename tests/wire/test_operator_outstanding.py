"""The list of outstanding claims, with everything that can happen while a node changes its devices.

No agent runs on the node: each test writes itself what the agent reports.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from background import background
from fake_agents import FakeAgents
from fake_api import FakeApi, JsonObject
from operator_world import World

NUMA, CPU = "cpudevnuma000", "cpudev003"


class Switching(World):
    """A cluster whose node n0 has applied grouped mode; from then on, the test writes what its agent reports."""

    def reports(self, phase: str, revision: str) -> None:
        self.agents.answer("n0", phase=phase, appliedRevision=revision)

    async def switch(self, **spec: Any) -> str:
        """Edits the config and waits until the CpuNode has the new settings; returns their revision."""
        before = self.revision()
        self.edit(**spec)
        await self.until(lambda: self.revision() != before)
        return self.revision()

    async def settles(self) -> None:
        """Waits until the operator follows claims and has nothing more to write."""
        await self.until(lambda: self.follows)
        await self.api.until_idle()

    @property
    def follows(self) -> bool:
        return self.requested("WATCH resourceclaims") > 0

    def lists(self) -> int:
        """How often all claims were listed. A list of one object only shows the present version."""
        lists = [request for request in self.api.requests if str(request) == "GET resourceclaims"]
        return sum(request.query.get("limit") != "1" and "continue" not in request.query for request in lists)

    def requested(self, what: str) -> int:
        return sum(str(request) == what for request in self.api.requests)

    def first_spec_with(self, revision: str) -> JsonObject:
        """The spec in the first write that had this revision."""
        writes = (request.body for request in self.api.requests if str(request) == "PATCH cpunodes/n0")
        return next(dict(body["spec"]) for body in writes if body["spec"].get("revision") == revision)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Switching]:
    async with FakeApi() as api:
        agents = FakeAgents(api)
        async with background(agents.run()):
            world = Switching(api, agents, tmp_path)
            world.nodes(2)
            world.config()
            async with world.operator():
                await world.applied(2)
            agents.away = {"n0"}
            yield world


async def test_claims_are_written_together_with_the_revision_that_needs_them(world: Switching) -> None:
    uid = world.claim("c", NUMA, 2)
    world.claim("elsewhere", NUMA, 1, node="n1")
    async with world.operator():
        individual = await world.switch(mode="individual")
        named = {"uid": uid, "namespace": "default", "name": "c", "devices": [{"name": NUMA, "cpus": 2}]}
        assert world.first_spec_with(individual)["outstanding"] == [named]


@pytest.mark.parametrize("change", [{"enabled": False}, {"enabled": True, "publish": "WithCPUs"}])
async def test_claims_of_memory_are_listed_when_its_devices_go_until_they_end(world: Switching, change) -> None:
    async with world.operator():
        enabled = await world.switch(memory={"enabled": True})
        assert world.first_spec_with(enabled)["outstanding"] == []
        world.reports("Ready", enabled)
        uid = world.claim("pages", "hugepages-2mi-numa001", size="64Mi")
        world.claim("c", NUMA, 2)
        changed = await world.switch(memory=change)
        device = {"name": "hugepages-2mi-numa001", "cpus": 0, "driver": "dra.memory"}
        amounts = {"amounts": {"hugepages_2Mi": 64 * 1024**2}}
        named = {"uid": uid, "namespace": "default", "name": "pages", "devices": [device | amounts]}
        assert world.specs()["n0"]["outstanding"] == [named]
        world.reports("Draining", changed)
        world.api.remove("resourceclaims", "default/pages")
        await world.until(lambda: world.outstanding() == set())


async def test_a_change_that_keeps_the_devices_needs_no_list(world: Switching) -> None:
    world.claim("c", NUMA, 2)
    async with world.operator():
        await world.switch(reservedCPUs="1")
        assert world.outstanding() == set()


async def test_a_claim_that_is_allocated_while_the_node_settles_is_listed_too(world: Switching) -> None:
    async with world.operator():
        grouped = world.revision()
        await world.switch(mode="individual")
        world.reports("Settling", grouped)
        world.claim("late", NUMA, 1)
        await world.until(lambda: world.outstanding() == {"late"})


async def test_a_claim_that_is_allocated_at_the_end_of_settling_is_listed_too(world: Switching) -> None:
    async with world.operator():
        grouped = world.revision()
        individual = await world.switch(mode="individual")
        world.reports("Settling", grouped)
        await world.settles()
        world.claim("tolerant", NUMA, 1)
        world.reports("Ready", individual)
        await world.until(lambda: world.outstanding() == {"tolerant"})


async def test_claims_on_old_devices_are_listed_while_the_agent_is_down(world: Switching) -> None:
    async with world.operator():
        await world.switch(mode="individual")  # the status still says Ready, with the former revision
        await world.settles()
        world.claim("late", NUMA, 1)
        await world.until(lambda: world.outstanding() == {"late"})


async def test_an_operator_that_starts_in_the_middle_continues_the_list(world: Switching) -> None:
    async with world.operator():
        grouped = world.revision()
        await world.switch(mode="individual")
        world.reports("Settling", grouped)
    world.claim("late", NUMA, 1)
    async with world.operator():
        await world.until(lambda: world.outstanding() == {"late"})


async def test_an_operator_that_was_down_all_the_time_lists_the_claims_afterwards(world: Switching) -> None:
    async with world.operator():
        individual = await world.switch(mode="individual")
    world.claim("late", NUMA, 1)
    world.reports("Ready", individual)
    async with world.operator():
        await world.until(lambda: world.outstanding() == {"late"})


async def test_prepared_claims_stay_listed_and_ended_claims_are_removed(world: Switching) -> None:
    for name in ("prepared", "deleted", "deallocated"):
        world.claim(name, NUMA, 1)
    async with world.operator():
        individual = await world.switch(mode="individual")
        world.reports("Draining", individual)
        await world.settles()
        assert world.outstanding() == {"prepared", "deleted", "deallocated"}
        world.api.remove("resourceclaims", "default/deleted")
        world.api.edit("resourceclaims", "default/deallocated", lambda body: body.update(status={}))
        await world.until(lambda: world.outstanding() == {"prepared"})
        world.api.remove("resourceclaims", "default/prepared")
        await world.until(lambda: world.outstanding() == set())
        world.reports("Ready", individual)
        await world.applied(2)


async def test_a_change_that_is_undone_before_the_agent_has_seen_it_leaves_no_list(world: Switching) -> None:
    world.claim("c", NUMA, 2)
    async with world.operator():
        grouped = world.revision()
        await world.switch(mode="individual")
        assert world.outstanding() == {"c"}
        assert await world.switch(mode="grouped") == grouped
        assert world.outstanding() == set()
        await world.settles()
        assert world.outstanding() == set()


async def test_a_change_that_is_undone_while_the_status_lags_lists_claims_on_the_devices_in_between(
    world: Switching,
) -> None:
    """The agent publishes the other devices, one is allocated, and the operator still sees the former status, which
    fits the settings that are back."""
    world.claim("held", NUMA, 2)
    async with world.operator():
        grouped = world.revision()
        await world.switch(mode="individual")
        world.claim("single", CPU)
        assert await world.switch(mode="grouped") == grouped
        assert world.outstanding() == {"held", "single"}
        await world.settles()
        assert world.outstanding() == {"held", "single"}


async def test_a_change_that_is_undone_while_the_node_drains_lists_all_claims_of_the_node(
    world: Switching,
) -> None:
    world.claim("held", NUMA, 2)
    async with world.operator():
        individual = await world.switch(mode="individual")
        world.reports("Draining", individual)
        world.claim("single", CPU)
        grouped = await world.switch(mode="grouped")
        assert {claim["name"] for claim in world.first_spec_with(individual)["outstanding"]} == {"held"}
        world.reports("Settling", individual)
        await world.settles()
        assert world.outstanding() == {"held", "single"}
        world.api.remove("resourceclaims", "default/single")
        world.reports("Draining", grouped)
        await world.until(lambda: world.outstanding() == set())


async def test_corrected_settings_list_the_claims_on_the_devices_that_stayed(world: Switching) -> None:
    async with world.operator():
        grouped = world.revision()
        await world.switch(mode="individual", reservedCPUs="400")
        world.agents.answer("n0", phase="Failed", appliedRevision=grouped, why="no CPU 400")
        world.claim("meanwhile", NUMA, 2)
        right = await world.switch(reservedCPUs="0")
        assert [claim["name"] for claim in world.first_spec_with(right)["outstanding"]] == ["meanwhile"]


async def test_entries_that_somebody_else_added_to_the_list_are_removed(world: Switching) -> None:
    def add(spec: JsonObject) -> None:
        spec["outstanding"] = [{"uid": "u", "namespace": "x", "name": "by-hand", "devices": []}]

    async with world.operator():
        world.api.edit("cpunodes", "n0", lambda body: add(body["spec"]))
        await world.until(lambda: world.outstanding() == set())


async def test_settings_that_somebody_edited_in_a_cpu_node_are_corrected(world: Switching) -> None:
    async with world.operator():
        await world.until(lambda: world.api.watching >= 3)
        world.api.edit("cpunodes", "n0", lambda body: body["spec"]["settings"].update(mode="individual"))
        await world.until(lambda: world.having(mode="individual") == set())


async def test_many_claims_of_many_nodes_are_read_page_by_page(world: Switching) -> None:
    for number in range(1100):
        world.claim(f"c{number:04}", NUMA, 1, node="n0" if number % 2 else f"other{number}")
    async with world.operator():
        await world.switch(mode="individual")
        assert len(world.outstanding()) == 550

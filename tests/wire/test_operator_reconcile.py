"""The reconciler without kopf: it sees only the objects that a test gives it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from blind_operator import NEVER_FRESH, ONE_AFTER_ANOTHER, Blind, blind_operator

from dracpu_operator.intervals import Intervals

RARELY_WRITING = replace(NEVER_FRESH, status_urgent=3600.0, status=3600.0)


@pytest.fixture
def intervals() -> Intervals:
    return NEVER_FRESH


@pytest.fixture
async def blind(intervals: Intervals) -> AsyncIterator[Blind]:
    async with blind_operator(intervals) as running:
        yield running


async def test_what_was_written_is_known_before_the_watch_shows_it(blind: Blind) -> None:
    blind.edit(mode="individual")
    await blind.api.until(lambda: blind.having("individual"))
    for _ in range(3):
        blind.fleet.changed.set()
        await blind.api.until_idle()
    assert blind.having("individual") == {"n0"}
    assert blind.asked("PATCH cpunodes/n0") == 2  # created, and changed


async def test_a_cpu_node_is_read_again_after_a_write_without_an_answer(blind: Blind) -> None:
    blind.api.lose_answer("PATCH cpunodes/n0")
    blind.edit(mode="individual")
    await blind.api.until(lambda: blind.asked("GET cpunodes/n0"))
    await blind.api.until_idle()
    assert blind.having("individual") == {"n0"}
    assert blind.asked("PATCH cpunodes/n0") == 2
    assert blind.reconciler.ready() == []


async def test_a_cpu_node_that_was_deleted_with_its_node_is_not_created_again(blind: Blind) -> None:
    blind.api.remove("cpunodes", "n0")
    blind.api.remove("nodes", "n0")
    blind.edit(mode="individual")
    await blind.api.until(lambda: blind.having("individual"))
    await blind.api.until_idle()
    assert blind.having("individual") == {"n1"}
    assert blind.asked("PATCH cpunodes/n0") == 2  # created, and a write that was refused because it was gone
    assert set(blind.fleet.nodes) == {"n1", "n2"}


async def test_a_cpu_node_that_somebody_created_again_is_read_again(blind: Blind) -> None:
    body = blind.api.get("cpunodes", "n0")
    blind.api.remove("cpunodes", "n0")
    for stale in ("uid", "resourceVersion", "generation"):
        del body["metadata"][stale]
    made = blind.api.add("cpunodes", body)
    blind.edit(mode="individual")
    await blind.api.until(lambda: blind.having("individual"))
    await blind.api.until_idle()
    assert blind.fleet.cpu_nodes["n0"].uid == made["metadata"]["uid"]
    assert blind.having("individual") == {"n0"}


async def test_the_operator_is_not_ready_while_the_api_server_refuses_and_gives_the_reason(blind: Blind) -> None:
    blind.api.fail("PATCH cpudriverconfigs/all", 403, "Forbidden", "cannot patch its status", times=1000)
    blind.edit(mode="individual")
    await blind.api.until(blind.reconciler.ready)
    assert "Forbidden: cannot patch its status" in blind.reconciler.ready()[0]
    assert blind.reconciler.live() == []


async def test_a_refused_cpu_node_delays_no_other_and_is_named_in_the_status(blind: Blind) -> None:
    """As when an admission webhook denies the change of one object."""
    blind.api.fail("PATCH cpunodes/n0", 403, "Forbidden", "admission webhook denied the request", times=100_000)
    blind.edit(mode="individual", rollout={"maxUnavailable": 1})

    def others_have_changed() -> bool:
        blind.answer_outdated()
        return blind.having("individual") == {"n1", "n2"}

    await blind.api.until(others_have_changed)

    def named() -> bool:
        conditions = blind.api.get("cpudriverconfigs", "all").get("status", {}).get("conditions", ())
        return any("n0: PATCH" in found["message"] and found["reason"] == "NodesRefused" for found in conditions)

    await blind.api.until(named)
    assert blind.reconciler.ready() == []


async def test_a_refused_cpu_node_is_tried_less_and_less_often(blind: Blind) -> None:
    blind.api.fail("PATCH cpunodes/n0", 403, "Forbidden", "denied", times=100_000)
    before = blind.asked("PATCH cpunodes/n0")
    blind.edit(mode="individual")

    def tried_three_times() -> bool:
        blind.answer_outdated()  # the others take the place of the refused one, and return it
        return blind.asked("PATCH cpunodes/n0") >= before + 3

    await blind.api.until(tried_three_times)
    assert blind.having("individual") == {"n1", "n2"}
    assert blind.fleet.to_read_again <= {"n0"}


async def test_statuses_are_written_although_a_cpu_node_could_not_be(blind: Blind) -> None:
    blind.api.fail("PATCH cpunodes", 403, "Forbidden", "no", times=1000)
    blind.edit(mode="individual")
    await blind.api.until(
        lambda: blind.api.get("cpudriverconfigs", "all").get("status", {}).get("observedGeneration") == 2
    )


async def test_a_cancelled_reconciler_sends_no_more_requests(blind: Blind) -> None:
    """When kopf ends, it also cancels tasks of the HTTP client: a request would never be answered."""
    listed = blind.asked("GET resourceclaims")
    blind.api.pause()
    blind.edit(mode="individual")
    await blind.api.until(lambda: blind.asked("GET resourceclaims") > listed)
    before = len(blind.api.requests)
    blind.running.cancel()
    await asyncio.wait({blind.running}, timeout=5)
    assert blind.running.done()
    assert len(blind.api.requests) == before


@pytest.mark.parametrize("intervals", [ONE_AFTER_ANOTHER])
async def test_a_rollout_that_is_paused_while_cpu_nodes_are_written_stops(blind: Blind) -> None:
    pause = {"maxUnavailable": "100%", "paused": True}
    blind.during_first("PATCH cpunodes/", lambda: blind.edit(rollout=pause))
    blind.edit(mode="individual", rollout={"maxUnavailable": "100%"})
    await blind.api.until(lambda: blind.having("individual"))
    await blind.api.until_idle()
    assert blind.having("individual") == {"n0"}
    blind.edit(rollout={"maxUnavailable": "100%"})
    await blind.api.until(lambda: len(blind.having("individual")) == 3)


@pytest.mark.parametrize("intervals", [ONE_AFTER_ANOTHER])
async def test_a_label_that_changes_while_cpu_nodes_are_written_does_not_wait_for_all_of_them(blind: Blind) -> None:
    blind.add_config("b", priority=1, nodeSelector={"matchLabels": {"pool": "b"}}, reservedCPUs="0")
    blind.during_first("PATCH cpunodes/", lambda: blind.label("n2", pool="b"))
    written = len(blind.api.requests)
    blind.edit(mode="individual", rollout={"maxUnavailable": "100%"})
    await blind.api.until(lambda: len(blind.having("individual")) == 2)
    order = [str(request) for request in blind.api.requests[written:] if str(request).startswith("PATCH cpunodes/")]
    assert order == ["PATCH cpunodes/n0", "PATCH cpunodes/n2", "PATCH cpunodes/n1"]


@pytest.mark.parametrize("intervals", [RARELY_WRITING])
async def test_a_condition_that_changes_often_is_not_written_each_time(blind: Blind) -> None:
    def writes() -> int:
        return blind.asked("PATCH cpudriverconfigs/all/status")

    before = writes()
    for _ in range(3):
        for troubles in ({"RuntimeConnected": "no"}, {}):
            blind.answer("n0", troubles=troubles)
            await blind.api.until_idle()
    assert writes() == before  # too soon after the last write


async def test_a_refused_status_does_not_keep_others_from_being_written(blind: Blind) -> None:
    blind.api.fail("PATCH cpudriverconfigs/another", 422, "Invalid", "no", times=1000)
    for name in ("another", "zebra"):
        blind.add_config(name, priority=-1, nodeSelector={"matchLabels": {"no": "node"}})
    await blind.api.until(lambda: blind.api.get("cpudriverconfigs", "zebra").get("status"))

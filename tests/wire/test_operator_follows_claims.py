"""Which requests for claims the operator sends while nodes change their devices, and what it misses: nothing.

The reconciler runs without the other watches: a test gives it the CpuNodes, and the time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random

import pytest
from claims_rollout import SOCKET, Rollout
from fake_api import FakeApi
from kubernetes_asyncio.client import Configuration
from running_operator import QUICK

from dracpu_operator.api import cluster
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.known import claimwatch
from dracpu_operator.known.claimwatch import ClaimWatch


@pytest.fixture
async def rollout() -> AsyncIterator[Rollout]:
    async with FakeApi() as api, Cluster(Configuration(host=api.url)) as connected:
        api.add("cpudriverconfigs", {"metadata": {"name": "all"}, "spec": {"rollout": {"maxUnavailable": 1}}})
        yield Rollout(api, connected)


@contextlib.asynccontextmanager
async def settled(rollout: Rollout, nodes: int = 2) -> AsyncIterator[None]:
    """Runs the operator in a cluster whose nodes have had their settings for an hour."""
    rollout.nodes(nodes)
    async with rollout.operator():
        await rollout.api.until(lambda: len(rollout.api.all("cpunodes")) == nodes)
        rollout.answer_all()
        await rollout.api.until_idle()
        rollout.later(60)
        await rollout.api.until(lambda: rollout.api.watching == 0)
        rollout.api.requests.clear()
        yield


async def test_a_rollout_to_forty_nodes_one_at_a_time_lists_the_claims_once(rollout: Rollout) -> None:
    async with settled(rollout, 40):
        for number in range(40):
            rollout.claim(f"c{number}", node=f"n{number}")
        rollout.edit(mode="individual")

        def finished() -> bool:
            changed = [raw for raw in rollout.api.all("cpunodes") if raw["spec"]["settings"]["mode"] == "individual"]
            return rollout.answer_all() and len(changed) == 40

        await rollout.api.until(finished, seconds=60)
        assert all(rollout.outstanding(f"n{number}") == {f"c{number}"} for number in range(40))
        assert rollout.requested("PATCH cpunodes/n0") == 1, "the list was complete when it was written"
        assert rollout.lists == 1


async def test_nothing_is_requested_while_no_node_changes_its_devices(rollout: Rollout) -> None:
    async with settled(rollout):
        rollout.edit(reservedCPUs="1")
        await rollout.api.until(lambda: rollout.answer_all() and rollout.requested("PATCH cpunodes/n1"))
        await rollout.api.until_idle()
        assert rollout.for_claims == 0


async def test_nothing_is_requested_either_where_a_former_version_did_not_store_when_the_devices_changed(
    rollout: Rollout,
) -> None:
    async with settled(rollout, 1):
        without = rollout.api.edit(
            "cpunodes", "n0", lambda body: body["metadata"]["annotations"].pop("dra.cpu/devices-changed-at")
        )
        rollout.fleet.store_cpu_node(without)
        rollout.edit(reservedCPUs="1")
        await rollout.api.until(lambda: rollout.answer_all() and rollout.requested("PATCH cpunodes/n0"))
        await rollout.api.until_idle()
        assert rollout.for_claims == 0


async def test_a_claim_that_is_allocated_ten_minutes_after_the_change_is_listed(rollout: Rollout) -> None:
    async with settled(rollout):
        await rollout.switch()
        rollout.later(10)
        rollout.claim("late")
        await rollout.lists_as_outstanding("late")
        assert rollout.lists == 1


async def test_following_ends_after_half_an_hour(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        rollout.claim("new", "cpudev003")
        await rollout.switch()
        rollout.later(29)
        await rollout.api.until_idle()
        assert rollout.api.watching == 1
        assert rollout.shows(1)
        rollout.later(7)
        await rollout.api.until(lambda: rollout.api.watching == 0)
        await rollout.api.until_idle()
        assert rollout.shows(0)


async def test_a_restart_ten_minutes_after_the_change_loses_no_late_allocation(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        await rollout.switch()
    rollout.now += timedelta(minutes=10)
    rollout.claim("while-away")
    async with rollout.operator():
        await rollout.lists_as_outstanding("while-away")
        rollout.claim("later")
        await rollout.lists_as_outstanding("while-away", "later")


async def test_a_restart_long_after_the_change_requests_no_claims(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        await rollout.switch()
    rollout.now += timedelta(minutes=60)
    rollout.api.requests.clear()
    async with rollout.operator():
        await rollout.api.until(lambda: rollout.fleet.cpu_nodes)
        await rollout.api.until_idle()
        assert rollout.for_claims == 0


async def test_a_change_that_keeps_the_devices_does_not_hide_an_earlier_one(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        await rollout.switch()
        rollout.later(10)
        rollout.edit(reservedCPUs="1")
        await rollout.api.until(lambda: rollout.answer_all() and rollout.requested("PATCH cpunodes/n0") == 2)
    rollout.now += timedelta(minutes=10)
    rollout.claim("late")
    async with rollout.operator():
        await rollout.lists_as_outstanding("late")


async def test_a_history_that_expires_costs_one_list_and_loses_nothing(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        for name in ("deleted", "stays"):
            rollout.claim(name)
        await rollout.switch()
        await rollout.lists_as_outstanding("deleted", "stays")
        rollout.api.hold_watches()
        rollout.api.remove("resourceclaims", "default/deleted")
        rollout.claim("late")
        rollout.api.cut_watches()
        rollout.api.expire_watches()
        rollout.api.release_watches()
        await rollout.lists_as_outstanding("late", "stays")
        assert rollout.lists == 2


async def test_a_broken_watch_continues_without_a_list(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        await rollout.switch()
        rollout.api.fail("WATCH resourceclaims", 503, "ServiceUnavailable", times=3)
        rollout.api.cut_watches()
        rollout.claim("late")
        await rollout.lists_as_outstanding("late")
        assert rollout.lists == 1


async def test_a_watch_that_stays_silent_is_checked_without_a_list(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with settled(rollout, 1):
        monkeypatch.setattr(cluster, "_SILENCE_SECONDS", 0.05)
        await rollout.switch()
        probes = rollout.requested("GET resourceclaims")
        await rollout.api.until(lambda: rollout.requested("GET resourceclaims") >= probes + 2)
        rollout.claim("late")
        await rollout.lists_as_outstanding("late")
        assert rollout.lists == 1


async def test_claims_that_end_are_removed_and_nothing_is_listed_for_that(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        for name in ("deleted", "deallocated", "stays"):
            rollout.claim(name)
        await rollout.switch()
        rollout.answer("n0", "Draining")
        rollout.later(60 * 24)
        rollout.api.remove("resourceclaims", "default/deleted")
        rollout.api.edit("resourceclaims", "default/deallocated", lambda body: body.update(status={}))
        await rollout.lists_as_outstanding("stays")
        assert rollout.lists == 1


async def test_a_change_waits_until_the_watch_has_shown_all_claims(rollout: Rollout) -> None:
    async with settled(rollout, 2):
        rollout.edit(mode="individual")
        await rollout.api.until(lambda: rollout.requested("PATCH cpunodes/n0"))
        await rollout.api.until_idle()
        rollout.api.hold_watches()
        rollout.claim("allocated-before", node="n1")
        rollout.answer("n0")
        await rollout.api.until(lambda: rollout.requested("WATCH resourceclaims") == 2)
        await rollout.api.until_idle()
        assert rollout.requested("PATCH cpunodes/n1") == 0
        rollout.api.release_watches()
        await rollout.api.until(lambda: rollout.requested("PATCH cpunodes/n1"))
        await rollout.lists_as_outstanding("allocated-before", node="n1")
        assert rollout.requested("PATCH cpunodes/n1") == 1
        assert rollout.lists == 1


async def test_a_rollout_that_is_paused_while_claims_are_listed_changes_no_node(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        rollout.api.pause()
        rollout.edit(mode="individual")
        await rollout.api.until(lambda: rollout.requested("GET resourceclaims"))
        rollout.edit(rollout={"paused": True})
        rollout.api.resume()
        await rollout.api.until(lambda: rollout.requested("WATCH resourceclaims"))
        await rollout.api.until_idle()
        assert rollout.requested("PATCH cpunodes/n0") == 0


async def test_claims_are_listed_again_where_watches_send_no_bookmarks(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimwatch, "_CATCH_UP_SECONDS", 1)  # too short for a bookmark
    monkeypatch.setattr(claimwatch, "_ATTEMPTS", 1)
    async with settled(rollout, 2):
        rollout.claim("c", node="n1")
        await rollout.switch()
        await rollout.lists_as_outstanding("c", node="n1")
        assert rollout.lists == 2, "one at the beginning"


async def test_a_claim_on_devices_that_its_node_does_not_publish_is_listed_when_it_shows_up(rollout: Rollout) -> None:
    async with settled(rollout, 2):
        await rollout.switch("n0")
        rollout.claim("strange", SOCKET, node="n1")
        await rollout.lists_as_outstanding("strange", node="n1")


async def test_changes_that_need_no_claims_are_written_although_claims_cannot_be_listed(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        await rollout.switch()
    rollout.api.fail("GET resourceclaims", 403, "Forbidden", "not allowed", times=100_000)
    async with rollout.operator():
        await rollout.api.until(lambda: rollout.requested("GET resourceclaims") > 1)
        rollout.edit(reservedCPUs="1")
        await rollout.api.until(lambda: rollout.spec("n0")["settings"]["reservedCPUs"] == "1")
        rollout.answer("n0")
        rollout.edit(mode="grouped")
        refused = rollout.requested("GET resourceclaims")
        await rollout.api.until(lambda: rollout.requested("GET resourceclaims") >= refused + 3)
        assert rollout.spec("n0")["settings"]["mode"] == "individual"


async def test_a_refused_list_of_claims_is_reported_and_tried_again(rollout: Rollout) -> None:
    async with settled(rollout, 1):
        rollout.claim("c")
        rollout.api.fail("GET resourceclaims", 403, "Forbidden", "not allowed", times=3)
        rollout.edit(mode="individual")
        await rollout.lists_as_outstanding("c")


async def test_after_a_restore_of_the_api_servers_data_claims_are_listed_again(rollout: Rollout) -> None:
    async with ClaimWatch(rollout.cluster, QUICK, lambda nodes: None, lambda: None) as watch:
        await watch.start()
        restore = rollout.api.backup()
        for name in ("lost", "lost-as-well"):
            rollout.claim(name)
        await watch.refresh()
        restore()
        rollout.claim("after")
        await watch.refresh()
        assert known(watch) == stored(rollout.api)
        assert rollout.lists == 2


@pytest.mark.parametrize("seed", range(5))
async def test_after_any_faults_the_claims_are_those_that_the_api_server_has(rollout: Rollout, seed: int) -> None:
    random, api, changes = Random(seed), rollout.api, set[str]()
    faults = [api.cut_watches, api.expire_watches, api.hold_watches, api.release_watches, api.bookmark]
    async with ClaimWatch(rollout.cluster, QUICK, changes.update, lambda: None) as watch:
        for number in range(60):
            present = [claim["metadata"]["name"] for claim in api.all("resourceclaims")]
            match random.choice(["allocate", "move", "deallocate", "delete", "fault", "refresh", "wait"]):
                case "allocate":
                    rollout.claim(f"c{number}", node=random.choice(["n0", "n1"]))
                case "deallocate" if present:
                    api.edit("resourceclaims", f"default/{random.choice(present)}", lambda body: body.update(status={}))
                case "move" if present:
                    name = random.choice(present)
                    api.remove("resourceclaims", f"default/{name}")
                    rollout.claim(name, node="n1")
                case "delete" if present:
                    api.remove("resourceclaims", f"default/{random.choice(present)}")
                case "fault":
                    random.choice(faults)()
                case "refresh":
                    api.release_watches()
                    await watch.refresh()
                    assert known(watch) == stored(api)
                case "wait":
                    await asyncio.sleep(0.005)
        api.release_watches()
        await watch.refresh()
        assert known(watch) == stored(api)


def known(watch: ClaimWatch) -> set[tuple[str, str]]:
    return {(node, claim.uid) for node in ("n0", "n1") for claim in watch.claims.of(node)}


def stored(api: FakeApi) -> set[tuple[str, str]]:
    return {
        (result["pool"], claim["metadata"]["uid"])
        for claim in api.all("resourceclaims")
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    }

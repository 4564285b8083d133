"""The whole operator with kopf, against a fake API server over HTTP; fake agents write the statuses of nodes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from background import background
from fake_agents import FakeAgents
from fake_api import FakeApi
from operator_world import World
from running_operator import QUICK, RunningOperator
from tls_material import CERTIFICATE, KEY

from dracpu_operator.errors import WatchError


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with FakeApi() as api:
        agents = FakeAgents(api)
        async with background(agents.run()):
            yield World(api, agents, tmp_path)


async def test_a_config_becomes_a_cpu_node_for_each_linux_node_and_the_status_counts_them(world: World) -> None:
    world.nodes(3)
    world.node("windows", **{"kubernetes.io/os": "windows"})
    world.config(reservedCPUs="0,1")
    async with world.operator():
        await world.applied(3)
    assert set(world.specs()) == {"n0", "n1", "n2"}
    cpu_node = world.api.get("cpunodes", "n0")
    owner = world.api.get("nodes", "n0")["metadata"]["uid"]
    assert cpu_node["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": owner}]
    assert cpu_node["spec"]["config"] == {"name": "all", "generation": 1}
    assert cpu_node["spec"]["settings"]["reservedCPUs"] == "0-1"
    assert world.status()["nodes"] == {"selected": 3, "applied": 3, "progressing": 0, "failed": 0, "withoutAgent": 0}
    assert world.status()["cpus"] == {"total": 24, "reserved": 6, "exclusive": 0, "available": 18}
    assert world.condition("Progressing")["reason"] == "Complete"


async def test_the_status_has_sums_of_memory_while_nodes_report_some(world: World) -> None:
    def report(node: str, *memory: dict[str, object]) -> None:
        world.agents.answer(node, phase="Ready", appliedRevision=world.revision(node), memory=memory)

    world.nodes(2)
    world.config(memory={"enabled": True, "reserved": [{"numaNode": 0, "memory": "1024Mi"}]})
    async with world.operator():
        await world.applied(2)
        assert "memory" not in world.status()
        assert world.having(memory={"enabled": True, "reserved": [{"numaNode": 0, "memory": "1Gi"}]}) == {"n0", "n1"}
        for node in ("n0", "n1"):
            report(node, {"numaNode": 0, "kind": "memory", "total": "12Gi", "reserved": "1Gi", "promised": "512Mi"})
        sums = {"kind": "memory", "total": "24Gi", "reserved": "2Gi", "promised": "1Gi", "available": "21Gi"}
        await world.until(lambda: world.status().get("memory") == [sums])
        for node in ("n0", "n1"):
            report(node)
        await world.until(lambda: "memory" not in world.status())


async def test_a_field_that_a_new_crd_adds_reaches_the_nodes_when_the_watch_from_before_has_ended(world: World) -> None:
    world.nodes(2)
    world.config()
    async with world.operator():
        await world.applied(2)
        world.api.fail("PATCH cpudriverconfigs/all/status", 500, times=1000)  # its answers would show the field
        world.api.add_to_schema("cpudriverconfigs", "reservedCPUs")
        world.edit(reservedCPUs="0", mode="individual")
        await world.until(partial(world.reached, 2))
        assert not world.having(reservedCPUs="0"), "the watch has not shown it"
        world.api.end_watches()
        await world.until(lambda: world.having(reservedCPUs="0") == {"n0", "n1"})


async def test_a_change_reaches_the_nodes_within_max_unavailable(world: World) -> None:
    world.nodes(8)
    world.config(rollout={"maxUnavailable": "25%"})
    async with world.operator():
        await world.applied(8)
        world.agents.away = {f"n{number}" for number in range(8)}
        world.edit(mode="individual")
        for expected in (2, 4, 6, 8):
            await world.until(partial(world.reached, expected))
            await world.api.until_idle()
            assert len(world.having(mode="individual")) == expected
            for name in world.having(mode="individual") & world.agents.away:
                world.agents.away.discard(name)
                world.agents.answer(name, phase="Ready", appliedRevision=world.specs()[name]["revision"])
        await world.applied(8)


async def test_a_label_moves_a_node_to_another_config(world: World) -> None:
    world.nodes(2)
    world.config()
    world.config("databases", nodeSelector={"matchLabels": {"pool": "databases"}}, priority=10, mode="individual")
    async with world.operator():
        await world.applied(2)
        world.api.edit("nodes", "n1", lambda body: body["metadata"]["labels"].update(pool="databases"))
        await world.applied(1, "databases")
        assert world.having(mode="individual") == {"n1"}
        world.api.edit("nodes", "n1", lambda body: body["metadata"]["labels"].pop("pool"))
        await world.until(lambda: world.having(mode="individual") == set())


async def test_a_config_that_nodes_refuse_stops_with_the_reason_and_continues_when_corrected(
    world: World,
) -> None:
    world.agents.refuse = lambda settings: "no CPU 400 here" if settings["reservedCPUs"] == "400" else ""
    world.nodes(6)
    world.config(rollout={"maxUnavailable": 2})
    async with world.operator():
        await world.applied(6)
        world.edit(reservedCPUs="400")
        await world.until(lambda: world.condition("Progressing").get("reason") == "Stopped")
        await world.api.until_idle()
        assert world.having(reservedCPUs="400") == {"n0", "n1"}
        assert world.status()["nodes"] == {
            "selected": 6,
            "applied": 0,
            "progressing": 4,
            "failed": 2,
            "withoutAgent": 0,
        }
        degraded = world.condition("Degraded")
        assert degraded["status"] == "True"
        assert "n0: no CPU 400 here; n1: no CPU 400 here" in degraded["message"]
        world.edit(reservedCPUs="2")
        await world.applied(6)
        assert world.having(reservedCPUs="2") == set(world.specs())
        await world.until(lambda: world.condition("Degraded")["status"] == "False")
        expected = {("Warning", "Stopped"), ("Warning", "NodesFailed"), ("Normal", "Complete")}
        await world.until(lambda: expected <= {(event["type"], event["reason"]) for event in world.api.all("events")})


async def test_a_paused_rollout_holds_back_changes_and_still_serves_new_nodes(world: World) -> None:
    world.nodes(2)
    world.config()
    async with world.operator():
        await world.applied(2)
        world.edit(mode="individual", rollout={"paused": True})
        await world.until(lambda: world.condition("Progressing").get("reason") == "Paused")
        world.node("n2")
        await world.applied(1)
        assert world.having(mode="individual") == {"n2"}
        world.edit(rollout={"paused": False})
        await world.applied(3)


async def test_a_node_that_is_created_again_with_another_uid_gets_a_new_cpu_node(world: World) -> None:
    world.nodes(2)
    world.config()
    async with world.operator():
        await world.applied(2)
        before = world.api.get("cpunodes", "n1")["metadata"]["uid"]
        world.api.remove("nodes", "n1")
        await world.applied(1)
        world.node("n1")
        await world.applied(2)
    after = world.api.get("cpunodes", "n1")["metadata"]
    assert after["uid"] != before
    assert after["ownerReferences"][0]["uid"] == world.api.get("nodes", "n1")["metadata"]["uid"]


async def test_cpu_nodes_are_removed_with_the_last_config_and_those_of_others_stay(world: World) -> None:
    world.nodes(2)
    world.api.add("nodes", {"metadata": {"name": "by-hand", "labels": {"kubernetes.io/os": "linux", "mine": "yes"}}})
    spec = {"config": {"name": "me", "generation": 1}, "settings": {"reservedCPUs": ""}, "revision": "1"}
    world.api.add("cpunodes", {"metadata": {"name": "by-hand"}, "spec": spec})
    world.config(nodeSelector={"matchExpressions": [{"key": "mine", "operator": "DoesNotExist"}]})
    async with world.operator():
        await world.applied(2)
        world.api.remove("cpudriverconfigs", "all")
        await world.until(lambda: set(world.specs()) == {"by-hand"})


async def test_nothing_is_written_when_nothing_has_changed(world: World) -> None:
    world.nodes(3)
    world.config()
    async with world.operator():
        await world.applied(3)
        await world.api.until_idle(0.2)
        before = len(world.api.written())
        world.api.edit("nodes", "n0", lambda body: body.update(status={"heartbeat": 1}))
        world.api.edit("cpudriverconfigs", "all", lambda body: body["metadata"].update(annotations={"a": "b"}))
        world.node("elsewhere", **{"kubernetes.io/os": "windows"})
        await world.api.until_idle(0.2)
        assert world.api.written()[before:] == []
    async with world.operator():
        await world.until(lambda: world.api.watching >= 3)
        await world.api.until_idle(0.2)
    assert world.api.written()[before:] == []


async def test_a_change_of_the_rollout_alone_changes_no_node(world: World) -> None:
    world.nodes(2)
    world.config()
    async with world.operator():
        await world.applied(2)
        before = world.specs()
        world.edit(rollout={"maxUnavailable": 1})
        await world.until(lambda: world.status()["observedGeneration"] == 2)
    assert world.specs() == before


async def test_an_operator_that_starts_in_the_middle_of_a_rollout_continues_it(world: World) -> None:
    world.nodes(6)
    world.config(rollout={"maxUnavailable": 2})
    async with world.operator():
        await world.applied(6)
        world.agents.away = set(world.specs())
        world.edit(mode="individual")
        await world.until(lambda: len(world.having(mode="individual")) == 2)
    async with world.operator():
        await world.until(lambda: world.api.watching >= 3)
        await world.api.until_idle(0.2)
        assert world.having(mode="individual") == {"n0", "n1"}
        world.agents.away = set()
        world.agents.answer("n0", phase="Ready", appliedRevision=world.specs()["n0"]["revision"])
        await world.applied(6)


async def test_the_operator_waits_for_its_custom_resources(world: World) -> None:
    world.nodes(1)
    world.config()
    world.api.fail("GET cpudriverconfigs", 404, "NotFound", times=3)
    async with world.operator():
        await world.applied(1)


async def test_the_operator_ends_when_its_custom_resources_are_deleted(world: World) -> None:
    async def serve_until_they_are_deleted() -> None:
        async with world.operator() as operator:
            await world.applied(1)
            await world.until(lambda: world.api.watching >= 3)
            world.api.fail("(GET|WATCH) cpu", 404, "NotFound", "page not found", times=100)
            world.api.cut_watches()
            await operator.ended()

    world.nodes(1)
    world.config()
    with pytest.raises(WatchError, match="page not found"):
        await serve_until_they_are_deleted()


async def test_the_operator_ends_when_the_api_servers_data_was_restored(world: World) -> None:
    async def serve_until_the_restore() -> None:
        async with world.operator() as operator:
            await world.applied(1)
            await world.until(lambda: world.api.watching >= 3)
            restore = world.api.backup()
            for number in range(50):  # the backup is some time older
                world.api.add("configmaps", {"metadata": {"name": f"c{number}"}}, namespace="default")
            world.edit(mode="individual")
            world.api.bookmark()
            await world.until(lambda: world.having(mode="individual"))
            restore()
            world.api.cut_watches()
            await operator.ended()

    world.nodes(1)
    world.config()
    with pytest.raises(WatchError, match="restore from a backup"):
        await serve_until_the_restore()
    async with world.operator():
        world.edit(mode="individual")
        await world.until(lambda: world.having(mode="individual"))


async def test_a_node_that_cannot_serve_claims_is_named_with_its_agents_message(world: World) -> None:
    world.nodes(2)
    world.config()
    async with world.operator():
        await world.applied(2)
        words = {"RuntimeConnected": "is NRI enabled?"}
        world.agents.answer("n1", phase="Ready", appliedRevision=world.revision("n1"), troubles=words)
        await world.until(lambda: world.condition("Degraded")["status"] == "True")
        assert world.condition("Degraded")["message"] == "1 node cannot serve claims: n1: is NRI enabled?"
        world.agents.answer("n1", phase="Ready", appliedRevision=world.revision("n1"))
        await world.until(lambda: world.condition("Degraded")["status"] == "False")


async def test_an_agent_that_never_reports_is_noticed_without_any_event_of_a_watch(world: World) -> None:
    world.nodes(1)
    world.agents.away = {"n0"}
    world.config()
    async with world.operator(replace(QUICK, trouble=0.05, silence=0.5)):
        await world.until(lambda: world.condition("Degraded").get("status") == "True")
        assert "n0: its agent has not reported yet" in world.condition("Degraded")["message"]


async def test_a_write_without_an_answer_does_not_exceed_the_budget(world: World) -> None:
    world.nodes(4)
    world.config(rollout={"maxUnavailable": 1})
    async with world.operator():
        await world.applied(4)
        world.agents.away = set(world.specs())
        world.api.lose_answer("PATCH cpunodes")
        world.edit(mode="individual")
        await world.until(lambda: world.having(mode="individual"))
        await world.api.until_idle(0.3)
        assert world.having(mode="individual") == {"n0"}


async def test_the_operator_waits_for_an_api_server_that_is_unavailable(world: World) -> None:
    world.nodes(2)
    world.config()
    async with world.operator():
        await world.applied(2)
        world.api.fail("(PATCH|GET)", 503, "ServiceUnavailable", times=12)
        world.api.cut_watches()
        world.edit(mode="individual")
        await world.applied(2)
        await world.until(lambda: world.having(mode="individual") == {"n0", "n1"})


async def test_over_tls_an_authority_without_a_key_usage_is_trusted(tmp_path: Path) -> None:
    """Python 3.13 refuses such certificate authorities by default."""
    (tmp_path / "cert").write_text(CERTIFICATE)
    (tmp_path / "key").write_text(KEY)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    async with FakeApi(tls=tls) as api:
        world = World(api, FakeAgents(api), tmp_path)
        world.nodes(1)
        world.config()
        async with RunningOperator(api.url, tmp_path, authority=CERTIFICATE):
            await world.until(lambda: world.specs() and api.watching >= 3)


async def test_watches_start_again_when_their_history_has_expired(world: World) -> None:
    world.nodes(1)
    world.config()
    async with world.operator():
        await world.applied(1)
        await world.until(lambda: world.api.watching >= 3)
        world.api.expire_watches()
        await world.until(lambda: world.api.watching >= 3)
        world.node("n1")
        await world.applied(2)


async def test_the_deletion_of_a_config_that_the_watch_misses_is_found(tmp_path: Path) -> None:
    async with FakeApi() as api:
        agents = FakeAgents(api)
        world = World(api, agents, tmp_path)
        pace = type(QUICK)(debounce=0.01, first_recheck=0.05, recheck=0.05, removal=0.0, status=0.05)
        async with background(agents.run()):
            world.nodes(2)
            world.config()
            async with RunningOperator(api.url, tmp_path, pace):
                await world.applied(2)
                api.hold_watches()
                world.api.remove("cpudriverconfigs", "all")
                await world.until(lambda: "n0" not in world.specs())
                api.release_watches()
                await asyncio.sleep(0)

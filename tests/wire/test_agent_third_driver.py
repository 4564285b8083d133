"""The agent serves any driver: a small one (marbles.py) goes through everything that claims go through."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_kubelet import FakeKubelet
from marbles import DRIVER, Bag, Marbles, cdi, marbles
from nodes import NODE, claim_object, machine, ref, share, spec, uid
from whole_agent import WholeNode, whole_node

from dracpu_agent.claims.audit import Finding
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.node import NodeState
from dracpu_agent.work.auditing import Auditor
from dracpu_api.settings import CpuNodeSpec
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime
from dracpu_sandbox.node.plugins import KubeletError, RegisteredPlugin


def driver_of(node: WholeNode) -> Marbles:
    assert node.agent is not None
    driver = node.agent.node.holdings[DRIVER].driver
    assert isinstance(driver, Marbles)
    return driver


def service_of(node: WholeNode) -> RegisteredPlugin:
    return node.plugins[DRIVER]


def changed(node: WholeNode) -> None:
    assert node.agent is not None
    node.agent.node.refresh()


def offered(node: WholeNode) -> dict[str, str]:
    """Returns the capacity of each device in the slices of this driver."""
    slices = [item["spec"] for item in node.api.all("resourceslices") if item["spec"]["driver"] == DRIVER]
    devices = [device for found in slices for device in found.get("devices") or ()]
    return {device["name"]: device["capacity"]["number"]["value"] for device in devices}


async def test_its_devices_are_published_beside_the_cpus() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        await node.api.until(lambda: offered(node) == {"marbles-blue": "5", "marbles-red": "3"})
        assert {name for name in node.devices() if name.startswith("cpudev")} == {"cpudevnuma000", "cpudevnuma001"}
        assert node.status["phase"] == "Ready"
        assert node.condition("SlicesPublished")["status"] == "True"


async def test_a_claim_has_marbles_from_prepare_to_unprepare() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 2, "some"), marbles("blue", 4, "more")]))
        some, more = await service_of(node).prepare_one(ref(1))
        assert (some.device, some.cdi_ids, more.cdi_ids) == ("marbles-red", (cdi(1, "some"),), (cdi(1, "more"),))
        (file,) = (node.root / "cdi").glob("example.com-marble_*.json")
        edits = {device["name"]: device["containerEdits"]["env"] for device in json.loads(file.read_text())["devices"]}
        assert edits[f"claim-{uid(1)}-some"] == [f"DRAMARBLES_{uid(1)}_some=2 red"]
        claim = f"default/{ref(1).name}"
        await node.api.until(lambda: node.api.get("resourceclaims", claim)["status"].get("devices"))
        data = [entry["data"] for entry in node.api.get("resourceclaims", claim)["status"]["devices"]]
        assert data == [{"colour": "red", "number": 2}, {"colour": "blue", "number": 4}]
        assert "dra_marbles_resource_claims_active 1" in (await node.probe("/metrics"))[1]

        await service_of(node).unprepare_one(ref(1))
        assert not file.exists()
        assert not driver_of(node).ledger.claims


async def test_marbles_that_are_not_free_are_refused_with_the_drivers_reason() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        for number in (1, 2):
            node.claim(claim_object(number, [marbles("red", 2)]))
        await service_of(node).prepare_one(ref(1))
        with pytest.raises(KubeletError, match="2 red marbles are not free"):
            await service_of(node).prepare_one(ref(2))
        await service_of(node).unprepare_one(ref(1))
        await service_of(node).prepare_one(ref(2))


async def test_a_claim_of_both_drivers_is_prepared_by_each_of_them() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [share("cpudevnuma001", 2, "cpus"), marbles("red", 1, "marbles")]))
        (cpus,) = await node.kubelet.prepare_one(ref(1))
        (red,) = await service_of(node).prepare_one(ref(1))
        both = [*cpus.cdi_ids, *red.cdi_ids]
        container = await node.runtime.create_container(node.pod(), "both", cdi_devices=both)
        assert node.runtime.cpuset_of(container) == "4-5"
        claim = f"default/{ref(1).name}"
        await node.api.until(lambda: len(node.api.get("resourceclaims", claim)["status"].get("devices") or ()) == 2)
        await service_of(node).unprepare_one(ref(1))
        assert driver_of(node).held() == {"red": 1}  # the container runs
        await node.runtime.stop_container(container)
        assert not driver_of(node).held()
        (again,) = await node.kubelet.prepare_one(ref(1))
        assert again.cdi_ids == cpus.cdi_ids


async def test_marbles_stay_held_while_a_container_uses_them() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        for number in (1, 2):
            node.claim(claim_object(number, [marbles("red", 3)]))
        await service_of(node).prepare_one(ref(1))
        container = await node.runtime.create_container(node.pod(), "player", cdi_devices=[cdi(1)])
        await service_of(node).unprepare_one(ref(1))
        with pytest.raises(KubeletError, match="not free"):
            await service_of(node).prepare_one(ref(2))
        await node.runtime.stop_container(container)
        await service_of(node).prepare_one(ref(2))


def join(node: WholeNode, pod: PodSandbox) -> None:
    """Reserves the first claim for one more pod, as the scheduler does."""
    consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
    claim = f"default/{ref(1).name}"
    node.api.edit("resourceclaims", claim, lambda found: found["status"]["reservedFor"].append(consumer))


def runtime_without_cdi_devices(socket: Path) -> NriRuntime:
    runtime = NriRuntime(socket, version="v1.7.27", nri_version="")
    runtime.own_methods = runtime.passes_cdi_devices = False
    return runtime


async def test_a_pod_that_joins_a_claim_of_both_drivers_is_proven_for_both() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers, runtime_at=runtime_without_cdi_devices) as node:
        owner, second = node.pod(), node.pod()
        parts = [share("cpudevnuma001", 2, "cpus"), marbles("red", 1, "marbles")]
        node.claim(claim_object(1, parts, pods=[owner.uid]))
        await node.kubelet.prepare_one(ref(1))
        await service_of(node).prepare_one(ref(1))
        join(node, second)
        env = [f"DRA_CPUSET_{uid(1)}=4-5", f"DRAMARBLES_{uid(1)}=1 red"]
        joined = await node.runtime.create_container(second, "joined", env=env)
        assert (node.runtime.cpuset_of(joined), limits_of(node, joined)) == ("4-5", {"pids.max": "1"})

        third = node.pod()
        await node.stop_agent()
        join(node, third)
        late = await node.runtime.create_container(third, "late", env=env)
        await node.start_agent()
        async with asyncio.timeout(10):
            while node.runtime.cpuset_of(late) != "4-5":  # a hook's reply moves it once its claim was read
                await node.runtime.create_container(node.pod(), "later")
        assert limits_of(node, late) == {"pids.max": "1"}


def limits_of(node: WholeNode, container: str) -> dict[str, str]:
    return dict(node.runtime.limits_of(container))


async def test_a_container_has_the_limits_of_its_claims_from_its_creation_on() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 2, "some"), marbles("blue", 4, "more")]))
        await service_of(node).prepare_one(ref(1))
        one = await node.runtime.create_container(node.pod(), "one", cdi_devices=[cdi(1, "some")])
        both = await node.runtime.create_container(node.pod(), "both", cdi_devices=[cdi(1, "some"), cdi(1, "more")])
        none = await node.runtime.create_container(node.pod(), "none")
        assert [limits_of(node, name) for name in (one, both, none)] == [{"pids.max": "2"}, {"pids.max": "6"}, {}]
        assert node.runtime.cpuset_of(both) == node.runtime.cpuset_of(none) == "2-7"
        await node.runtime.update_container(one)  # the kubelet's resize
        assert limits_of(node, one) == {"pids.max": "2"}


async def test_containers_without_cpus_of_claims_are_created_at_once() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 2)]))
        await service_of(node).prepare_one(ref(1))
        pod = node.pod()
        await asyncio.gather(*(node.runtime.create_container(pod, f"c{n}", cdi_devices=[cdi(1)]) for n in range(3)))
        assert node.agent is not None
        assert node.agent.node.containers.pinned() == 0


async def test_limits_that_change_reach_containers_that_run() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 2)]))
        await service_of(node).prepare_one(ref(1))
        player = await node.runtime.create_container(node.pod(), "player", cdi_devices=[cdi(1)])
        driver_of(node).processes_per_marble = 3
        changed(node)
        await node.runtime.until(lambda: limits_of(node, player) == {"pids.max": "6"})


async def test_a_failed_update_of_limits_is_repeated() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 2)]))
        await service_of(node).prepare_one(ref(1))
        player = await node.runtime.create_container(node.pod(), "player", cdi_devices=[cdi(1)])
        node.runtime.containerd.failing_updates.add(player)
        driver_of(node).processes_per_marble = 3
        changed(node)
        while 'dra_cpu_pool_pushes_total{result="error"} 0' in (await node.probe("/metrics"))[1]:
            assert limits_of(node, player) == {"pids.max": "2"}
        assert limits_of(node, player) == {"pids.max": "2"}
        node.runtime.containerd.failing_updates.clear()
        await node.runtime.until(lambda: limits_of(node, player) == {"pids.max": "6"})


async def test_a_container_that_was_started_without_an_agent_gets_its_limits() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 2)]))
        await service_of(node).prepare_one(ref(1))
        await node.stop_agent()
        player = await node.runtime.create_container(node.pod(), "player", cdi_devices=[cdi(1)])
        assert limits_of(node, player) == {}
        await node.start_agent()
        await node.runtime.until(lambda: limits_of(node, player) == {"pids.max": "2"})


async def test_a_container_that_names_marbles_without_a_claim_is_refused() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 3)]))
        await service_of(node).prepare_one(ref(1))
        with pytest.raises(HookError, match="pods must not set variables that start with DRA_CPUSET_ or DRAMARBLES_"):
            await node.runtime.create_container(node.pod(), "thief", env=[f"DRAMARBLES_{uid(1)}=3 red"])


@pytest.mark.parametrize("lost", [(), ("state/checkpoint.json", "state/checkpoint.previous.json")], ids=["", "files"])
async def test_claims_survive_the_end_of_the_agent(lost: Sequence[str]) -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 3)]))
        prepared = await service_of(node).prepare_one(ref(1))
        await node.runtime.create_container(node.pod(), "player", cdi_devices=[cdi(1)])
        await node.stop_agent()
        for name in lost:
            (node.root / name).unlink(missing_ok=True)
        await node.start_agent()
        assert driver_of(node).held() == {"red": 3}
        assert await service_of(node).prepare_one(ref(1)) == prepared


async def test_a_deleted_cdi_file_is_written_again_when_the_agent_starts() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 3)]))
        await service_of(node).prepare_one(ref(1))
        (file,) = (node.root / "cdi").glob("example.com-marble_*.json")
        content = file.read_bytes()
        await node.stop_agent()
        file.unlink()
        await node.start_agent()
        assert file.read_bytes() == content


async def test_a_capacity_that_shrinks_below_what_is_held_is_what_is_held_and_comes_back() -> None:
    bag = Bag(blue=5, red=3)
    async with whole_node(others=bag.drivers) as node:
        node.claim(claim_object(1, [marbles("red", 2)]))
        await service_of(node).prepare_one(ref(1))
        health = service_of(node).watch_health()
        assert {device.health for device in await anext(health)} == {1}  # healthy

        bag.there["red"] = 1
        changed(node)
        await node.api.until(lambda: offered(node)["marbles-red"] == "2")
        lost = {device.device.device_name: device.message for device in await anext(health) if device.message}
        assert lost == {"marbles-red": "some are lost"}
        assert driver_of(node).held() == {"red": 2}

        bag.there["red"] = 4
        changed(node)
        await node.api.until(lambda: offered(node)["marbles-red"] == "4")
        await health.aclose()


async def test_the_node_drains_while_a_device_that_is_not_offered_any_more_is_held() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        node.claim(claim_object(1, [marbles("red", 2)]))
        await service_of(node).prepare_one(ref(1))
        driver_of(node).closed.add("red")
        changed(node)
        await node.api.until(lambda: offered(node) == {"marbles-blue": "5"})
        await node.api.until(lambda: node.status["phase"] == "Draining")

        await node.stop_agent()
        await node.start_agent()
        assert driver_of(node).closed == {"red"}  # its state is in the checkpoint
        await service_of(node).unprepare_one(ref(1))
        await node.api.until(lambda: node.status["phase"] == "Ready")


async def test_settings_that_it_refuses_are_refused_for_the_whole_node() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        refused = spec(revision="r2", reserved="0-3")
        node.configure(CpuNodeSpec("no-marbles", 1, refused.settings, "r2"))
        await node.api.until(lambda: node.condition("ConfigApplied").get("status") == "False")
        assert "marbles are not possible with this config" in node.condition("ConfigApplied")["message"]
        assert node.status["cpus"]["reserved"] == "0-1"


async def test_a_refused_registration_is_shown_with_the_drivers_name() -> None:
    async with whole_node(others=Bag(blue=5, red=3).drivers) as node:
        assert node.condition("KubeletRegistered")["status"] == "True"
        async with FakeKubelet(node.root, knows=()) as older:
            with pytest.raises(KubeletError) as refused:
                await older.register(DRIVER)
        await node.api.until(lambda: node.condition("KubeletRegistered")["status"] == "False")
        assert node.condition("KubeletRegistered")["message"] == f"driver {DRIVER}: {refused.value}"


async def test_the_audit_releases_its_claims_of_which_the_kubelet_knows_nothing() -> None:
    driver = Marbles({"blue": 5, "red": 3})
    state = NodeState(NODE, machine(), [driver])
    state.configure(spec())
    state.containers.synchronize([])
    holding = state.holdings[DRIVER]
    holding.grant(driver.read(ref(1), claim_object(1, [marbles("red", 2)])))
    asked, released = [], []

    async def read(found: ClaimRef, _seconds: float) -> dict[str, Any]:
        asked.append(found)
        return claim_object(1, [share("cpudevnuma001", 2)])  # it has no marbles any more

    async def release_if_gone(found: ClaimRef) -> Finding:
        holding.release(found.uid)
        return Finding.ELSEWHERE

    auditor = Auditor(state, holding, read, release_if_gone, lambda claim, reason: released.append(claim.content))
    await auditor.round()
    assert not released
    await auditor.round()
    assert released == ["marbles 2 red"]
    assert not driver.held()

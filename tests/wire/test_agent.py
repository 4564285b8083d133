"""The agent as a whole, as kubelet, runtime and API server see it."""

import pytest
from nodes import NODE, claim_object, outstanding, ref, share, spec, uid, whole
from whole_agent import whole_node

from dracpu_api.settings import Mode
from dracpu_sandbox.node.nri_runtime import HookError
from dracpu_sandbox.node.plugins import KubeletError

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"


def cdi(number):
    return f"dra.k8s.io/cpu=claim-{uid(number)}"


async def test_a_started_agent_publishes_its_devices_and_says_that_it_is_ready():
    async with whole_node() as node:
        capacities = {name: device["capacity"]["dra.cpu/cpu"]["value"] for name, device in node.devices().items()}
        assert capacities == {NUMA0: "2", NUMA1: "4"}
        assert node.status["appliedRevision"] == "r1"
        assert {name: node.status["cpus"][name] for name in ("reserved", "exclusive", "shared")} == {
            "reserved": "0-1",
            "exclusive": "",
            "shared": "2-7",
        }
        assert {c["type"]: c["status"] for c in node.status["conditions"]} == dict.fromkeys(
            ("ConfigApplied", "KubeletRegistered", "RuntimeConnected", "SlicesPublished", "StateHealthy"), "True"
        )


async def test_a_claims_way_from_prepare_to_unprepare():
    async with whole_node() as node:
        before = await node.runtime.create_container(node.pod(), "before")
        assert node.runtime.cpuset_of(before) == "2-7"
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        (device,) = await node.kubelet.prepare_one(ref(1))
        assert device.cdi_ids == (cdi(1),)
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        assert node.runtime.cpuset_of(pinned) == "4-5"
        assert node.runtime.cpuset_of(before) == "2-3,6-7"
        after = await node.runtime.create_container(node.pod(), "after")
        assert node.runtime.cpuset_of(after) == "2-3,6-7"
        claim = f"default/{ref(1).name}"
        await node.api.until(lambda: node.api.get("resourceclaims", claim)["status"].get("devices"))
        (shown,) = node.api.get("resourceclaims", claim)["status"]["devices"]
        assert shown["data"] == {"cpuset": "4-5"}

        await node.runtime.stop_container(pinned)
        await node.kubelet.unprepare_one(ref(1))
        await node.runtime.until(lambda: node.runtime.cpuset_of(before) == node.runtime.cpuset_of(after) == "2-7")


async def test_deleted_slices_come_back():
    async with whole_node() as node:
        (published,) = node.api.all("resourceslices")
        node.api.remove("resourceslices", published["metadata"]["name"])
        await node.api.until(lambda: set(node.devices()) == {NUMA0, NUMA1})


async def test_a_changed_cpunode_is_followed_without_a_restart_while_a_claim_is_held():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        node.configure(spec(Mode.INDIVIDUAL, revision="r2"))
        expected = {"cpudev002", "cpudev003", "cpudev006", "cpudev007"}
        await node.api.until(lambda: set(node.devices()) == expected)
        await node.api.until(lambda: node.status.get("appliedRevision") == "r2")
        assert node.status["phase"] == "Draining"
        await node.kubelet.unprepare_one(ref(1))
        await node.api.until(lambda: set(node.devices()) == expected | {"cpudev004", "cpudev005"})
        await node.ready()


async def test_other_devices_appear_when_the_former_ones_have_been_closed_for_a_while():
    async with whole_node() as node:
        node.configure(spec(Mode.INDIVIDUAL, revision="r2", settle_seconds=1))
        await node.api.until(lambda: node.status.get("phase") == "Settling")
        await node.api.until(lambda: all(device.get("taints") for device in node.devices().values()))
        assert set(node.devices()) == {NUMA0, NUMA1}
        assert node.status["appliedRevision"] == "r1"
        assert node.condition("ConfigApplied")["reason"] == "Settling"
        await node.api.until(lambda: node.status["appliedRevision"] == "r2")
        assert set(node.devices()) == {f"cpudev{cpu:03d}" for cpu in range(2, 8)}
        await node.ready()


async def test_a_claim_that_was_allocated_before_the_devices_changed_is_prepared_after():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 4)]))
        node.configure(spec(Mode.INDIVIDUAL, revision="r2", outstanding=[outstanding(1, (NUMA1, 4))]))
        await node.api.until(lambda: set(node.devices()) == {"cpudev002", "cpudev003"})
        await node.api.until(lambda: node.status.get("phase") == "Draining")
        await node.kubelet.prepare_one(ref(1))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        assert node.runtime.cpuset_of(pinned) == "4-7"
        node.configure(spec(Mode.INDIVIDUAL, revision="r2"))
        await node.runtime.stop_container(pinned)
        await node.kubelet.unprepare_one(ref(1))
        await node.api.until(lambda: len(node.devices()) == 6)
        await node.ready()


async def test_a_revision_counts_as_applied_only_when_its_slices_stand_at_the_api_server():
    async with whole_node() as node:
        node.api.fail("(POST|PUT) resourceslices", 503, times=1000)
        node.configure(spec(Mode.INDIVIDUAL, revision="r2"))
        await node.api.until(lambda: node.condition("SlicesPublished").get("status") == "False")
        assert (node.status["phase"], node.status["appliedRevision"]) == ("Pending", "r1")


async def test_a_revision_that_changes_no_device_is_applied_at_once():
    async with whole_node() as node:
        node.configure(spec(revision="r2"))
        await node.api.until(lambda: node.status.get("appliedRevision") == "r2")


async def test_settings_that_the_node_cannot_apply_are_refused_by_name_and_change_nothing():
    async with whole_node() as node:
        node.configure(spec(reserved="0,64", revision="r2"))
        await node.api.until(lambda: node.condition("ConfigApplied").get("status") == "False")
        assert "CPU 64" in node.condition("ConfigApplied")["message"]
        assert node.status["phase"] == "Failed"
        assert node.status["appliedRevision"] == "r1"
        assert set(node.devices()) == {NUMA0, NUMA1}


async def test_refused_settings_apply_by_themselves_once_nothing_stands_against_them():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        node.configure(spec(reserved="4-5", revision="r2"))
        await node.api.until(lambda: node.status.get("phase") == "Failed")
        await node.kubelet.unprepare_one(ref(1))
        await node.api.until(lambda: node.status.get("appliedRevision") == "r2")
        await node.ready()


async def test_a_node_that_no_config_selects_any_more_offers_nothing_and_keeps_its_claims():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        node.api.remove("cpunodes", NODE)
        await node.api.until(lambda: not node.api.all("resourceslices"))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        assert node.runtime.cpuset_of(pinned) == "4-5"


async def test_a_claim_that_cannot_be_prepared_tells_its_owner_why():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, "500m")]))
        with pytest.raises(KubeletError, match="whole number of at least 1"):
            await node.kubelet.prepare_one(ref(1))
        with pytest.raises(KubeletError, match="does not exist any more"):
            await node.kubelet.prepare_one(ref(2))


async def test_a_forged_environment_does_not_get_a_container_created():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        with pytest.raises(HookError, match="pods must not set variables"):
            await node.runtime.create_container(node.pod(), "forger", env=[f"DRA_CPUSET_{uid(1)}=4-5"])


async def test_a_killed_agent_goes_on_where_it_was():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        node.claim(claim_object(2, [share(NUMA1, 2)]))
        first = await node.kubelet.prepare_one(ref(1))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        await node.stop_agent()
        stray = await node.runtime.create_container(node.pod(), "stray")
        assert node.runtime.cpuset_of(stray) == ""
        await node.start_agent()
        await node.runtime.until(lambda: node.runtime.cpuset_of(stray) == "2-3,6-7")
        assert node.runtime.cpuset_of(pinned) == "4-5"
        assert await node.kubelet.prepare_one(ref(1)) == first
        await node.kubelet.prepare_one(ref(2))
        second = await node.runtime.create_container(node.pod(), "second", cdi_devices=[cdi(2)])
        assert node.runtime.cpuset_of(second) == "6-7"


async def test_a_restarted_runtime_finds_every_container_where_it_was():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        shared = await node.runtime.create_container(node.pod(), "shared")
        await node.runtime.restart()
        await node.runtime.synchronized()
        assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(shared)) == ("4-5", "2-3,6-7")


async def test_individual_devices_are_exactly_the_cpus_that_the_allocation_names():
    async with whole_node(spec(Mode.INDIVIDUAL)) as node:
        node.claim(claim_object(1, [whole(cpu) for cpu in (2, 3, 5)]))
        devices = await node.kubelet.prepare_one(ref(1))
        assert [device.device for device in devices] == ["cpudev002", "cpudev003", "cpudev005"]
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        assert node.runtime.cpuset_of(pinned) == "2-3,5"


async def test_without_the_api_server_a_restarted_agent_serves_what_it_knows():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        first = await node.kubelet.prepare_one(ref(1))
        await node.stop_agent()
        node.api.fail("GET resourceclaims", 503, times=1000)
        await node.start_agent()
        assert await node.kubelet.prepare_one(ref(1)) == first
        node.claim(claim_object(2, [share(NUMA1, 2)]))
        with pytest.raises(KubeletError, match="cannot be read"):
            await node.kubelet.prepare_one(ref(2))

"""The whole agent, connected to a kubelet, a runtime and an API server."""

import asyncio
import shutil

import pytest
from fake_kubelet import FakeKubelet
from fake_pod_resources import pod_resources
from newer_agent import body_of, rewritten
from nodes import NODE, claim_object, outstanding, ref, share, spec, uid, whole
from whole_agent import whole_node

from dracpu_api.settings import Mode
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.plugins import KubeletError

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"


def cdi(number):
    return f"dra.k8s.io/cpu=claim-{uid(number)}"


def files_in(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def test_a_started_agent_publishes_its_devices_and_reports_that_it_is_ready():
    async with whole_node() as node:
        capacities = {name: device["capacity"]["dra.cpu/cpu"]["value"] for name, device in node.devices().items()}
        assert capacities == {NUMA0: "2", NUMA1: "4"}
        assert node.status["appliedRevision"] == "r1"
        assert {name: node.status["cpus"][name] for name in ("reserved", "exclusive", "shared")} == {
            "reserved": "0-1",
            "exclusive": "",
            "shared": "2-7",
        }
        assert {condition["type"]: condition["status"] for condition in node.status["conditions"]} == dict.fromkeys(
            ("ConfigApplied", "KubeletRegistered", "RuntimeConnected", "SlicesPublished", "StateHealthy"), "True"
        )


async def test_a_claims_containers_have_its_cpus_from_prepare_to_unprepare():
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
        (device_status,) = node.api.get("resourceclaims", claim)["status"]["devices"]
        assert device_status["data"] == {"cpuset": "4-5"}

        await node.runtime.stop_container(pinned)
        await node.kubelet.unprepare_one(ref(1))
        await node.runtime.until(lambda: node.runtime.cpuset_of(before) == node.runtime.cpuset_of(after) == "2-7")


async def test_deleted_slices_are_published_again():
    async with whole_node() as node:
        (published,) = node.api.all("resourceslices")
        node.api.remove("resourceslices", published["metadata"]["name"])
        await node.api.until(lambda: set(node.devices()) == {NUMA0, NUMA1})


async def test_new_settings_apply_without_a_restart_while_a_claim_holds_cpus():
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


async def test_new_devices_are_published_after_the_old_ones_were_tainted_for_the_settle_time():
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


async def test_a_claim_that_was_allocated_before_the_devices_changed_can_still_be_prepared():
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


async def test_a_revision_is_applied_only_after_its_slices_are_published():
    async with whole_node() as node:
        node.api.fail("(POST|PUT) resourceslices", 503, times=1000)
        node.configure(spec(Mode.INDIVIDUAL, revision="r2"))
        await node.api.until(lambda: node.condition("SlicesPublished").get("status") == "False")
        assert (node.status["phase"], node.status["appliedRevision"]) == ("Pending", "r1")


async def test_a_revision_that_changes_no_device_is_applied_at_once():
    async with whole_node() as node:
        node.configure(spec(revision="r2"))
        await node.api.until(lambda: node.status.get("appliedRevision") == "r2")


async def test_settings_that_the_node_cannot_apply_are_refused_and_change_nothing():
    async with whole_node() as node:
        node.configure(spec(reserved="0,64", revision="r2"))
        await node.api.until(lambda: node.condition("ConfigApplied").get("status") == "False")
        assert "CPU 64" in node.condition("ConfigApplied")["message"]
        assert node.status["phase"] == "Failed"
        assert node.status["appliedRevision"] == "r1"
        assert set(node.devices()) == {NUMA0, NUMA1}


async def test_refused_settings_apply_when_the_reason_has_gone():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        node.configure(spec(reserved="4-5", revision="r2"))
        await node.api.until(lambda: node.status.get("phase") == "Failed")
        await node.kubelet.unprepare_one(ref(1))
        await node.api.until(lambda: node.status.get("appliedRevision") == "r2")
        await node.ready()


async def test_a_node_without_a_cpunode_publishes_nothing_and_keeps_its_claims():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        node.api.remove("cpunodes", NODE)
        await node.api.until(lambda: not node.api.all("resourceslices"))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        assert node.runtime.cpuset_of(pinned) == "4-5"


async def test_the_kubelet_gets_the_reason_why_a_claim_cannot_be_prepared():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, "500m")]))
        with pytest.raises(KubeletError, match="whole number of at least 1"):
            await node.kubelet.prepare_one(ref(1))
        with pytest.raises(KubeletError, match="does not exist any more"):
            await node.kubelet.prepare_one(ref(2))


async def test_a_container_with_a_forged_environment_is_not_created():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        with pytest.raises(HookError, match="pods must not set variables"):
            await node.runtime.create_container(node.pod(), "forger", env=[f"DRA_CPUSET_{uid(1)}=4-5"])


async def test_a_restarted_agent_restores_claims_and_pins_containers_created_meanwhile():
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


async def test_an_agent_that_follows_a_newer_one_keeps_the_claims_whose_records_it_cannot_read():
    async with whole_node() as node:
        for number in (1, 2):
            node.claim(claim_object(number, [share(NUMA1, 2)]))
            await node.kubelet.prepare_one(ref(number))
        first = await node.kubelet.prepare_one(ref(1))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(2)])
        shared = await node.runtime.create_container(node.pod(), "shared")
        await node.stop_agent()

        def change(body):
            body["spec"]["settings"]["futureSetting"] = body["futureField"] = {"on": True}
            body["claims"][0]["futureField"] = "kept"
            body["claims"][1]["grants"][0]["kind"] = "future"

        checkpoint = node.root / "state" / "checkpoint.json"
        checkpoint.write_bytes(rewritten(checkpoint.read_bytes(), change))
        entries = body_of(checkpoint.read_bytes())["claims"]
        await node.start_agent()
        await node.api.until(lambda: node.condition("StateHealthy").get("reason") == "ClaimsFrozen")
        assert "default/claim-2 (CPUs 6-7)" in node.condition("StateHealthy")["message"]
        assert node.status["cpus"]["exclusive"] == "4-7"
        assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(shared)) == ("6-7", "2-3")
        assert await node.kubelet.prepare_one(ref(1)) == first
        with pytest.raises(KubeletError, match="install the newer version again"):
            await node.kubelet.prepare_one(ref(2))

        await node.runtime.stop_container(pinned)
        again = await node.runtime.create_container(node.pod(), "again", cdi_devices=[cdi(2)])
        assert node.runtime.cpuset_of(again) == "6-7"
        assert body_of(checkpoint.read_bytes())["claims"] == entries
        await node.runtime.stop_container(again)
        await node.kubelet.unprepare_one(ref(2))
        await node.api.until(lambda: node.condition("StateHealthy").get("reason") == "Healthy")
        await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-3,6-7")
        assert body_of(checkpoint.read_bytes())["claims"] == entries[:1]
        assert body_of(checkpoint.read_bytes())["futureField"] == {"on": True}


async def test_a_restarted_agent_writes_the_cdi_files_that_are_missing():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        before = files_in(node.root / "cdi")
        await node.stop_agent()
        shutil.rmtree(node.root / "cdi")
        await node.start_agent()
        assert files_in(node.root / "cdi") == before
        assert node.runtime.cpuset_of(pinned) == "4-5"
        await node.api.until(lambda: "CDIFilesRepaired" in [event["reason"] for event in node.api.all("events")])


async def test_a_cdi_file_that_disappears_while_the_agent_runs_is_written_again(monkeypatch):
    monkeypatch.setattr("dracpu_agent.work.cdi_repair.POLL_SECONDS", 0.01)
    async with whole_node() as node:
        for number in (1, 2):
            node.claim(claim_object(number, [share(NUMA1, 2)]))
            await node.kubelet.prepare_one(ref(number))
        before = files_in(node.root / "cdi")
        (node.root / "cdi" / f"dra.k8s.io-cpu_{uid(1)}.json").unlink()
        await node.api.until(lambda: node.api.all("events"))
        assert files_in(node.root / "cdi") == before
        (event,) = node.api.all("events")
        assert (event["type"], event["reason"]) == ("Normal", "CDIFilesRepaired")
        assert event["note"].endswith("of claims default/claim-1")
        (node.root / "cdi").rename(node.root / "elsewhere")
        await node.api.until(lambda: len(node.api.all("events")) == 2)
        assert files_in(node.root / "cdi") == before


async def test_a_restarted_agent_writes_the_device_status_that_its_predecessor_has_not_written(monkeypatch):
    monkeypatch.setattr("dracpu_agent.cluster.device_status.REPEAT_SECONDS", 0.01)
    claim = f"default/{ref(1).name}"
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        node.api.fail("PATCH resourceclaims", 404)  # the agent drops this write
        await node.kubelet.prepare_one(ref(1))
        await node.api.until(lambda: "PATCH resourceclaims" in " ".join(node.api.written()))
        await node.stop_agent()
        assert not node.api.get("resourceclaims", claim)["status"].get("devices")
        await node.start_agent()
        await node.api.until(lambda: node.api.get("resourceclaims", claim)["status"].get("devices"))
        (device_status,) = node.api.get("resourceclaims", claim)["status"]["devices"]
        assert device_status["data"] == {"cpuset": "4-5"}


async def test_containers_keep_their_cpus_after_a_restart_of_the_runtime():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.kubelet.prepare_one(ref(1))
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        shared = await node.runtime.create_container(node.pod(), "shared")
        await node.runtime.restart()
        await node.runtime.synchronized()
        assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(shared)) == ("4-5", "2-3,6-7")


async def test_in_individual_mode_a_claim_gets_exactly_the_allocated_cpus():
    async with whole_node(spec(Mode.INDIVIDUAL)) as node:
        node.claim(claim_object(1, [whole(cpu) for cpu in (2, 3, 5)]))
        devices = await node.kubelet.prepare_one(ref(1))
        assert [device.device for device in devices] == ["cpudev002", "cpudev003", "cpudev005"]
        pinned = await node.runtime.create_container(node.pod(), "pinned", cdi_devices=[cdi(1)])
        assert node.runtime.cpuset_of(pinned) == "2-3,5"


async def test_without_the_api_server_a_restarted_agent_prepares_only_claims_that_it_knows():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        first = await node.kubelet.prepare_one(ref(1))
        await node.stop_agent()
        node.api.fail("GET resourceclaims", 503, times=1000, retry_after=60)
        await node.start_agent()
        assert await node.kubelet.prepare_one(ref(1)) == first
        node.claim(claim_object(2, [share(NUMA1, 2)]))
        with pytest.raises(KubeletError, match="cannot be read"):
            await node.kubelet.prepare_one(ref(2))


async def test_a_new_claim_is_prepared_although_the_api_server_cannot_answer_at_first():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        node.api.fail("GET resourceclaims", 429, "TooManyRequests", retry_after=0)
        node.api.fail("GET resourceclaims", 503, "ServiceUnavailable")
        node.api.lose_answer("GET resourceclaims")
        (device,) = await node.kubelet.prepare_one(ref(1))
        assert device.cdi_ids == (cdi(1),)


async def test_a_claim_that_is_prepared_during_a_restart_of_the_runtime_waits_for_it():
    async with whole_node() as node:
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        await node.runtime.stop()
        await node.api.until(lambda: node.condition("RuntimeConnected").get("status") == "False")
        preparing = asyncio.create_task(node.kubelet.prepare_one(ref(1)))
        await asyncio.sleep(0)
        await node.kubelet.unprepare_one(ref(2))  # a later call, which does not need the runtime
        assert not [request for request in node.api.requests if "GET resourceclaims" in str(request)]
        await node.runtime.start()
        (device,) = await preparing
        assert device.cdi_ids == (cdi(1),)


async def test_the_kubelets_reason_to_refuse_the_driver_is_reported_until_it_accepts_it():
    def registration():
        condition = node.condition("KubeletRegistered")
        return condition.get("status"), condition.get("reason")

    async with whole_node() as node:
        async with FakeKubelet(node.root, knows=["v2.DRAPlugin"]) as kubelet:
            with pytest.raises(KubeletError):
                await kubelet.register("dra.cpu")
        await node.api.until(lambda: registration() == ("False", "Refused"))
        assert "none of ['v1.DRAPlugin'" in node.condition("KubeletRegistered")["message"]
        status, reasons = await node.probe("/readyz")
        assert (status, "none of ['v1.DRAPlugin'" in reasons) == (503, True)
        await node.start_kubelet()
        await node.api.until(lambda: registration() == ("True", "Registered"))


async def test_a_kubelet_that_restarts_with_the_static_cpu_manager_closes_the_node_until_it_restarts_without():
    def closed():
        condition = node.condition("KubeletRegistered")
        tainted = [[taint["key"] for taint in device.get("taints", ())] for device in node.devices().values()]
        return condition.get("reason"), tainted

    async with whole_node() as node:
        async with pod_resources(node.root, cpus=[]):
            await node.start_kubelet()
            assert await node.probe("/readyz") == (200, "ok\n")
        async with pod_resources(node.root, cpus=range(2, 8)):
            await node.start_kubelet()
            await node.api.until(lambda: closed() == ("StaticCPUManager", [["dra.cpu/not-ready"]] * 2))
            assert "cpuManagerPolicy" in node.condition("KubeletRegistered")["message"]
            status, reasons = await node.probe("/readyz")
            assert (status, "cpuManagerPolicy" in reasons) == (503, True)
        async with pod_resources(node.root, cpus=[]):
            await node.start_kubelet()
            await node.api.until(lambda: closed() == ("Registered", [[], []]))
            assert await node.probe("/readyz") == (200, "ok\n")

"""Tests pods on a simulated node: their claims, CPUs, start and end."""

from dataclasses import replace

from nodes import NODE, share, uid
from one_node import HASTE, one_node

from dracpu_api.cpuset import CpuSet

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"


def container(name: str, *command: str, request: str = "", **fields: object) -> dict[str, object]:
    claims = [{"name": "cpus", "request": request}] if request else []
    return {"name": name, "image": "busybox", "command": list(command), "resources": {"claims": claims}, **fields}


async def test_a_pod_without_claims_runs_on_the_shared_cpus_and_its_status_reports_them() -> None:
    async with one_node() as world:
        world.pod("web")
        await world.runs("web")
        assert world.pinned("web") == "main: 2-7"
        assert world.node.cpuset_of("default", "web", "main") == "2-7"
        status = world.status("web")
        assert {item["type"]: item["status"] for item in status["conditions"]}["Ready"] == "True"
        (main,) = status["containerStatuses"]
        assert main["ready"]
        assert main["containerID"].startswith("containerd://")


async def test_a_pod_with_a_claim_gets_exclusive_cpus_and_other_pods_leave_them() -> None:
    async with one_node() as world:
        world.pod("web")
        await world.runs("web")
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        assert world.pinned("db") == "main: 4-5"
        await world.api.until(lambda: world.pinned("web") == "main: 2-3,6-7")
        assert world.node.logs("default", "web", "main") == "Cpus_allowed_list:\t2-7\nCpus_allowed_list:\t2-3,6-7\n"
        world.delete("db")
        await world.gone("db")
        await world.api.until(lambda: world.pinned("web") == "main: 2-7")


async def test_the_status_of_a_container_reports_the_health_of_its_devices() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        resource = {"resourceID": f"dra.k8s.io/cpu=claim-{uid(1)}", "health": "Healthy"}
        expected = [{"name": "claim:cpus", "resources": [resource]}]
        await world.api.until(
            lambda: world.status("db")["containerStatuses"][0].get("allocatedResourcesStatus") == expected
        )


async def test_init_containers_run_one_after_the_other_before_the_main_containers() -> None:
    async with one_node() as world:
        world.pod("web", initContainers=[container("one", "true"), container("two", "sh", "-c", "echo; true")])
        await world.runs("web")
        status = world.status("web")
        assert [item["state"]["terminated"]["reason"] for item in status["initContainerStatuses"]] == ["Completed"] * 2
        await world.api.until(lambda: len(world.events("Started")) == 3)
        assert set(world.events("Started")) == {f"Container started: {name}" for name in ("one", "two", "main")}


async def test_a_sidecar_with_a_claim_keeps_its_cpus_beside_the_main_container() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2, "proxy"), share(NUMA1, 1, "work", 1)], "web")
        world.pod(
            "web",
            {"cpus": "claim-1"},
            initContainers=[
                container("proxy", request="proxy", restartPolicy="Always"),
                container("setup", "true", request="work"),
            ],
            containers=[container("main", request="work"), container("helper")],
        )
        await world.runs("web")
        assert world.pinned("web") == "proxy: 4-5, main: 6, helper: 2-3,7"
        assert world.node.logs("default", "web", "setup") == "Cpus_allowed_list:\t6\n"


async def test_a_container_that_asks_for_extended_resources_runs_on_the_claim_made_for_them() -> None:
    mapping = {"containerName": "main", "resourceName": "example.com/cpu", "requestName": "container-0-request-0"}
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2, mapping["requestName"])], "db")
        world.pod(
            "db",
            containers=[container("main"), container("helper")],
            status={"extendedResourceClaimStatus": {"resourceClaimName": "claim-1", "requestMappings": [mapping]}},
        )
        await world.runs("db")
        assert world.pinned("db") == "main: 4-5, helper: 2-3,6-7"


async def test_a_succeeded_pod_releases_its_cpus_and_keeps_its_logs() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2)], "job")
        world.pod("job", {"cpus": "claim-1"}, restartPolicy="Never", command=["sleep", "0.05"])
        await world.api.until(lambda: world.status("job").get("phase") == "Succeeded")
        assert world.node.logs("default", "job", "main") == "Cpus_allowed_list:\t4-5\n"
        world.claim(2, [share(NUMA1, 4)], "next")
        world.pod("next", {"cpus": "claim-2"})
        await world.runs("next")
        world.delete("job")
        await world.gone("job")


async def test_a_failed_pod_reports_its_phase_and_exit_code() -> None:
    async with one_node() as world:
        world.pod("job", restartPolicy="Never", command=["sh", "-c", "exit 3"])
        await world.api.until(lambda: world.status("job").get("phase") == "Failed")
        assert world.status("job")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_a_crashing_container_is_restarted_with_back_off() -> None:
    async with one_node() as world:
        world.pod("bad", command=["false"])
        await world.api.until(
            lambda: (
                (statuses := world.status("bad").get("containerStatuses"))
                and statuses[0]["restartCount"] >= 2
                and statuses[0]["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"
            )
        )
        assert world.status("bad")["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1


async def test_a_failure_to_prepare_a_claim_is_reported_and_retried() -> None:
    async with one_node() as world:
        world.claim(1, [{**share(NUMA1, 2), "consumedCapacity": {"dra.cpu/cpu": "1500m"}}], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.api.until(lambda: world.events("FailedPrepareDynamicResources"))
        (note,) = set(world.events("FailedPrepareDynamicResources"))
        assert note.startswith(
            "Failed to prepare dynamic resources: NodePrepareResources failed for ResourceClaim claim-1: "
        )
        assert world.status("db").get("phase") == "Pending"
        world.api.remove("resourceclaims", "default/claim-1")
        world.claim(1, [share(NUMA1, 2)], "db")
        await world.runs("db")


async def test_a_failed_prepare_is_repeated_only_at_the_resync_or_when_the_pod_is_changed() -> None:
    never = replace(HASTE, prepare_retry=(3600.0, 3600.0))
    async with one_node(delays=never) as world:
        world.pod("db", {"cpus": "claim-1"})  # there is no such claim yet
        await world.api.until(lambda: world.status("db").get("conditions") and world.status("db").get("phase"))
        await world.api.until(lambda: world.events("FailedPrepareDynamicResources"))
        world.claim(1, [share(NUMA1, 2)], "db")
        world.api.edit("pods", "default/db", lambda pod: pod["status"].update(message="changed"))
        await world.node.set_offline(CpuSet.parse("3"))  # the driver reports the health of its devices
        await world.api.until_idle(0.2)
        assert world.status("db").get("phase") == "Pending"
        world.api.edit("pods", "default/db", lambda pod: pod["metadata"].update(labels={"a": "b"}))
        await world.runs("db")


async def test_a_pod_cannot_use_a_claim_that_is_not_reserved_for_it() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2)], "somebody-else")
        world.pod("db", {"cpus": "claim-1"})
        await world.api.until(lambda: world.events("FailedPrepareDynamicResources"))
        assert "pod db is not allowed to use ResourceClaim claim-1" in world.events("FailedPrepareDynamicResources")[0]


async def test_a_forced_deletion_of_a_pod_stops_its_containers() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 4)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        world.api.remove("pods", "default/db")
        world.claim(2, [share(NUMA1, 4)], "next")
        world.pod("next", {"cpus": "claim-2"})
        await world.runs("next")
        assert world.pinned("next") == "main: 4-7"


async def test_a_pod_that_is_deleted_while_its_claims_are_prepared_is_never_started() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2)], "db")
        await world.api.until_idle()
        world.api.pause()
        world.api.requests.clear()
        world.pod("db", {"cpus": "claim-1"})
        await world.api.until(lambda: any("resourceclaims" in str(request) for request in world.api.requests))
        world.delete("db")
        await world.api.until_idle()
        world.api.resume()
        await world.gone("db")
        world.claim(2, [share(NUMA1, 4)], "next")
        world.pod("next", {"cpus": "claim-2"})
        await world.runs("next")
        assert world.pinned("next") == "main: 4-7"
        await world.api.until(lambda: world.events("Started"))
        assert {event["regarding"]["name"] for event in world.api.all("events")} == {"next"}


async def test_a_pod_replaces_a_deleted_pod_of_the_same_name() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 4)], "web", "web-2")
        world.pod("web", {"cpus": "claim-1"})
        await world.runs("web")
        world.api.hold_watches()
        world.api.remove("pods", "default/web")
        world.pod("web", uid="web-2")
        world.api.expire_watches()  # so that no watch reports the deletion
        world.api.release_watches()
        await world.api.until(lambda: world.pinned("web") == "main: 2-7")


async def test_the_node_registers_itself() -> None:
    async with one_node() as world:
        node = world.api.get("nodes", NODE)
        assert node["status"]["allocatable"]["cpu"] == "8"
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NODE
        assert {item["type"]: item["status"] for item in node["status"]["conditions"]}["Ready"] == "True"

"""What a simulated node survives: its agent, its kubelet, its runtime, itself."""

import asyncio
from pathlib import Path

import pytest
from nodes import NODE, share, uid
from one_node import HASTE, kubeconfig, one_node
from structlog.testing import capture_logs
from structlog.typing import EventDict

from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.client import UnreachableError
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.node.agents import AgentKind
from dracpu_sandbox.node.node import NodeError, SimulatedNode
from dracpu_sandbox.node.programs import FOR_EVER

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"


async def test_a_killed_agent_comes_back_and_repairs_what_was_created_without_it() -> None:
    async with one_node(agent="process") as world:
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        await world.node.crash_agent()
        assert (world.node.root / "kubelet/plugins_registry/dra.cpu-reg.sock").exists()  # nobody took it away
        world.pod("web")
        await world.runs("web")
        assert world.pinned("web") == "main: 0-7"  # the runtime creates containers without a plugin that is away
        assert world.pinned("db") == "main: 4-5"
        await world.node.start_agent()
        await world.api.until(lambda: world.pinned("web") == "main: 2-3,6-7")
        world.delete("db")
        await world.gone("db")


async def test_an_agent_that_ends_by_itself_is_started_again() -> None:
    ended = asyncio.Event()

    def notice(_logger: object, _method: str, event: EventDict) -> EventDict:
        if event["event"] == "agent ended":
            ended.set()
        return event

    async with one_node() as world:
        await world.node.stop_agent()
        machine = world.node.root / "machine"
        tree = machine.readlink()
        machine.unlink()  # now an agent cannot even read its CPUs
        with capture_logs([notice]) as logged:
            starting = asyncio.create_task(world.node.start_agent())
            await ended.wait()
            machine.symlink_to(tree)
            await starting
        assert any("set --sysfs-root" in line.get("error", "") for line in logged)


async def test_slices_of_a_driver_that_stays_away_are_deleted() -> None:
    async with one_node() as world:
        assert world.devices() == {NUMA0, NUMA1}
        await world.node.stop_agent()
        await world.api.until(lambda: not world.api.all("resourceslices"))
        await world.node.start_agent()
        await world.api.until(lambda: world.devices() == {NUMA0, NUMA1})


async def test_a_new_kubelet_deletes_the_slices_and_leaves_the_pods_alone() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2)], "db", "late")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        before = world.status("db")["containerStatuses"][0]["containerID"]
        (former,) = (one["metadata"]["uid"] for one in world.api.all("resourceslices"))
        await world.node.restart_kubelet()
        await world.api.until(lambda: world.devices() == {NUMA0, NUMA1})
        assert former not in {one["metadata"]["uid"] for one in world.api.all("resourceslices")}
        world.pod("late", {"cpus": "claim-1"})  # its claim is prepared again: the agent gives the same CPUs
        await world.runs("late")
        assert world.pinned("late") == world.pinned("db") == "main: 4-5"
        assert world.status("db")["containerStatuses"][0]["containerID"] == before
        for pod in ("db", "late"):
            world.delete(pod)
            await world.gone(pod)
        assert not list((world.node.root / "run/cdi").glob("*.json"))


async def test_a_new_kubelet_deletes_the_slices_though_the_server_fails_at_first() -> None:
    async with one_node() as world:
        (former,) = (one["metadata"]["uid"] for one in world.api.all("resourceslices"))
        world.api.fail("GET resourceslices", 429)
        world.api.fail("DELETE resourceslices", 500)
        await world.node.restart_kubelet()
        await world.api.until(lambda: world.devices() == {NUMA0, NUMA1})
        assert former not in {one["metadata"]["uid"] for one in world.api.all("resourceslices")}


async def test_a_kubelet_lists_its_pods_again_when_the_server_fails() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 4)], "db")
        world.pod("db", {"cpus": "claim-1"})
        world.pod("web")
        await world.runs("db", "web")
        world.api.fail("GET pods", 403, times=2)
        world.api.cut_watches()
        world.api.remove("pods", "default/db")
        await world.api.until(lambda: world.pinned("web") == "main: 2-7")  # it has noticed
        world.api.fail("GET pods", 500)
        await world.node.restart_kubelet()
        world.pod("late")
        await world.runs("late")


async def test_a_new_kubelet_starts_a_container_that_the_former_one_has_only_created() -> None:
    async with one_node() as world:
        runtime = world.node._runtime  # where a kubelet has left it that ended at this moment
        left = await runtime.create(
            runtime.run_pod("default", "job", "job"), "main", env=(), cdi_devices=(), program=FOR_EVER
        )
        world.pod("job", restartPolicy="Never")
        await world.runs("job")
        assert [one.running for one in runtime.containers_of("job")] == [True]
        assert left not in runtime.nri.containers


async def test_a_new_kubelet_ends_pods_that_were_deleted_while_it_was_away() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 4)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        world.api.hold_watches()
        world.api.remove("pods", "default/db")
        await world.node.restart_kubelet()
        world.api.release_watches()
        await world.api.until(lambda: not list((world.node.root / "run/cdi").glob("*.json")))


async def test_containers_survive_a_restart_of_the_runtime() -> None:
    async with one_node() as world:
        world.pod("web")
        await world.runs("web")
        before = world.status("web")["containerStatuses"][0]["containerID"]
        await world.node.restart_runtime()
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        await world.api.until(lambda: world.pinned("web") == "main: 2-3,6-7")
        assert world.status("web")["containerStatuses"][0]["containerID"] == before


async def test_after_a_reboot_pods_start_again_on_their_cpus() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        world.pod("web")
        await world.runs("db", "web")
        boot = world.api.get("nodes", NODE)["status"]["nodeInfo"]["bootID"]
        await world.node.reboot()
        await world.api.until(
            lambda: all(world.status(pod)["containerStatuses"][0]["restartCount"] == 1 for pod in ("db", "web"))
        )
        await world.api.until(lambda: world.pinned("db") == "main: 4-5" and world.pinned("web") == "main: 2-3,6-7")
        assert world.status("db")["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
        assert (world.node.root / f"run/cdi/dra.k8s.io-cpu_{uid(1)}.json").exists()
        assert world.api.get("nodes", NODE)["status"]["nodeInfo"]["bootID"] != boot


@pytest.mark.parametrize("agent", ["task", "process"])
async def test_a_device_whose_cpus_go_offline_is_unhealthy_until_they_come_back(agent: AgentKind) -> None:
    async with one_node(agent=agent) as world:
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")

        def health() -> object:
            resources = world.status("db")["containerStatuses"][0].get("allocatedResourcesStatus") or [{}]
            return resources[0].get("resources", [{}])[0].get("health")

        await world.node.set_offline(CpuSet.parse("4"))
        await world.api.until(lambda: health() == "Unhealthy" and world.pinned("db") == "main: 5")
        await world.node.set_offline(CpuSet())
        await world.api.until(lambda: health() == "Healthy" and world.pinned("db") == "main: 4-5")


async def test_a_container_whose_cpus_are_all_offline_runs_where_its_parent_may() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        await world.node.stop_agent()  # nobody is there to do better
        await world.node.set_offline(CpuSet.parse("4-5"))
        assert world.node.cpuset_of("default", "db", "main") == "0-3,6-7"
        await world.api.until(lambda: world.pinned("db") == "main: 0-3,6-7")


async def test_a_folder_too_deep_for_sockets_is_refused(tmp_path: Path) -> None:
    node = SimulatedNode(NODE, LAB, tmp_path / "kubeconfig", tmp_path / ("d" * 100))
    with pytest.raises(NodeError, match="is too long for unix sockets below it: use a shorter folder"):
        await node.run()


async def test_a_node_without_its_api_server_does_not_come_up(short_path: Path) -> None:
    access = kubeconfig(short_path / "kubeconfig", "http://127.0.0.1:1")
    node = SimulatedNode(NODE, LAB, access, short_path / "n", pace=HASTE)
    with pytest.raises(UnreachableError, match="does not answer"):
        await node.run()

"""Tests that a simulated node survives failures and restarts of its agent, kubelet, runtime and machine."""

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


async def test_a_restarted_agent_moves_containers_that_were_created_without_it() -> None:
    async with one_node(agent="process") as world:
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        await world.node.crash_agent()
        assert (world.node.root / "kubelet/plugins_registry/dra.cpu-reg.sock").exists()  # SIGKILL leaves the socket
        world.pod("web")
        await world.runs("web")
        assert world.pinned("web") == "main: 0-7"  # the runtime creates containers without the plugin
        assert world.pinned("db") == "main: 4-5"
        await world.node.start_agent()
        await world.api.until(lambda: world.pinned("web") == "main: 2-3,6-7")
        world.delete("db")
        await world.gone("db")


async def test_an_agent_that_exits_by_itself_is_restarted() -> None:
    ended = asyncio.Event()

    def notice(_logger: object, _method: str, event: EventDict) -> EventDict:
        if event["event"] == "agent has exited":
            ended.set()
        return event

    async with one_node() as world:
        await world.node.stop_agent()
        machine = world.node.root / "machine"
        tree = machine.readlink()
        machine.unlink()  # the agent cannot read its CPUs
        with capture_logs([notice]) as logged:
            starting = asyncio.create_task(world.node.start_agent())
            await ended.wait()
            machine.symlink_to(tree)
            await starting
        assert any("set --sysfs-root" in line.get("error", "") for line in logged)


async def test_slices_of_a_driver_that_does_not_return_are_deleted() -> None:
    async with one_node() as world:
        assert world.devices() == {NUMA0, NUMA1}
        await world.node.stop_agent()
        await world.api.until(lambda: not world.api.all("resourceslices"))
        await world.node.start_agent()
        await world.api.until(lambda: world.devices() == {NUMA0, NUMA1})


async def test_a_restarted_kubelet_deletes_the_slices_and_keeps_the_pods() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2)], "db", "late")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        before = world.status("db")["containerStatuses"][0]["containerID"]
        (former,) = (item["metadata"]["uid"] for item in world.api.all("resourceslices"))
        await world.node.restart_kubelet()
        await world.api.until(lambda: world.devices() == {NUMA0, NUMA1})
        assert former not in {item["metadata"]["uid"] for item in world.api.all("resourceslices")}
        world.pod("late", {"cpus": "claim-1"})  # its claim is prepared again, with unchanged CPUs
        await world.runs("late")
        assert world.pinned("late") == world.pinned("db") == "main: 4-5"
        assert world.status("db")["containerStatuses"][0]["containerID"] == before
        for pod in ("db", "late"):
            world.delete(pod)
            await world.gone(pod)
        assert not list((world.node.root / "run/cdi").glob("*.json"))


async def test_a_restarted_kubelet_retries_to_delete_the_slices() -> None:
    async with one_node() as world:
        (former,) = (item["metadata"]["uid"] for item in world.api.all("resourceslices"))
        world.api.fail("GET resourceslices", 429)
        world.api.fail("DELETE resourceslices", 500)
        await world.node.restart_kubelet()
        await world.api.until(lambda: world.devices() == {NUMA0, NUMA1})
        assert former not in {item["metadata"]["uid"] for item in world.api.all("resourceslices")}


async def test_a_kubelet_lists_its_pods_again_after_server_errors() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 4)], "db")
        world.pod("db", {"cpus": "claim-1"})
        world.pod("web")
        await world.runs("db", "web")
        world.api.fail("GET pods", 403, times=2)
        world.api.cut_watches()
        world.api.remove("pods", "default/db")
        await world.api.until(lambda: world.pinned("web") == "main: 2-7")  # the deletion was seen
        world.api.fail("GET pods", 500)
        await world.node.restart_kubelet()
        world.pod("late")
        await world.runs("late")


async def test_a_restarted_kubelet_replaces_a_container_that_was_created_but_not_started() -> None:
    async with one_node() as world:
        runtime = world.node._runtime  # as if a kubelet had ended after creating the container
        left = await runtime.create(
            runtime.run_pod("default", "job", "job"), "main", env=(), cdi_devices=(), program=FOR_EVER
        )
        world.pod("job", restartPolicy="Never")
        await world.runs("job")
        assert [found.running for found in runtime.containers_of("job")] == [True]
        assert left not in runtime.nri.containers


async def test_a_restarted_kubelet_ends_pods_that_were_deleted_meanwhile() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 4)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        world.api.hold_watches()
        world.api.remove("pods", "default/db")
        await world.node.restart_kubelet()
        world.api.release_watches()
        async with asyncio.timeout(10):
            while list((world.node.root / "run/cdi").glob("*.json")):
                await world.api.until_idle()  # a deleted file is no event


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


async def test_pods_restart_on_their_cpus_after_a_reboot() -> None:
    async with one_node() as world:
        world.claim(2, [share(NUMA1, 2)], "former")
        world.pod("former", {"cpus": "claim-2"})
        await world.runs("former")
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        world.pod("web")
        await world.runs("db", "web")
        world.delete("former")  # so that the claim of `db` would get other CPUs if it were granted anew
        await world.gone("former")
        boot = world.api.get("nodes", NODE)["status"]["nodeInfo"]["bootID"]
        await world.node.reboot()
        await world.api.until(
            lambda: all(world.status(pod)["containerStatuses"][0]["restartCount"] == 1 for pod in ("db", "web"))
        )
        await world.api.until(lambda: world.pinned("db") == "main: 6-7" and world.pinned("web") == "main: 2-5")
        assert world.status("db")["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
        assert (world.node.root / f"run/cdi/dra.k8s.io-cpu_{uid(1)}.json").exists()
        assert world.api.get("nodes", NODE)["status"]["nodeInfo"]["bootID"] != boot


@pytest.mark.parametrize("agent", ["task", "process"])
async def test_a_device_is_unhealthy_while_a_cpu_of_it_is_offline(agent: AgentKind) -> None:
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


async def test_a_container_without_online_cpus_runs_on_all_online_cpus() -> None:
    async with one_node() as world:
        world.claim(1, [share(NUMA1, 2)], "db")
        world.pod("db", {"cpus": "claim-1"})
        await world.runs("db")
        await world.node.stop_agent()  # so that no agent moves the container
        await world.node.set_offline(CpuSet.parse("4-5"))
        assert world.node.cpuset_of("default", "db", "main") == "0-3,6-7"
        await world.api.until(lambda: world.pinned("db") == "main: 0-3,6-7")


async def test_a_path_that_is_too_long_for_sockets_is_rejected(tmp_path: Path) -> None:
    node = SimulatedNode(NODE, LAB, tmp_path / "kubeconfig", tmp_path / ("d" * 100))
    with pytest.raises(NodeError, match="is too long for unix sockets: use a shorter folder"):
        await node.run()


async def test_a_node_without_an_api_server_does_not_start(short_path: Path) -> None:
    access = kubeconfig(short_path / "kubeconfig", "http://127.0.0.1:1")
    node = SimulatedNode(NODE, LAB, access, short_path / "n", delays=HASTE)
    with pytest.raises(UnreachableError, match="does not answer"):
        await node.run()

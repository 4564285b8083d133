"""Tests the whole system in one process, as users of pods and claims see it."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from dracpu_api.cpuset import CpuSet
from dracpu_operator.errors import AccessError
from dracpu_sandbox.client import InvalidError, UnreachableError
from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.install import DEFAULT_CONFIG
from dracpu_sandbox.machines.presets import LAB, TINY
from dracpu_sandbox.operating import operate
from dracpu_sandbox.resources import CONFIGS, PODS
from dracpu_sandbox.stories.story import Story


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_pod_gets_its_cpus_and_its_status_names_them(cluster: Sandbox, story: Story) -> None:
    await story.pod("web", cpus=2)
    await story.until_running("web")
    assert story.cpus("web") == CpuSet.parse("2-3")
    pod = await cluster.client.get(PODS, "web", "default")
    (pinned,) = [item for item in pod["status"]["conditions"] if item["type"] == "sandbox.dra.cpu/Pinned"]
    assert (pinned["status"], pinned["message"]) == ("True", "main: 2-3")


async def test_agents_have_pods_with_their_state_and_their_logs(cluster: Sandbox, story: Story) -> None:
    async def shown() -> tuple[bool, int]:
        pod = await cluster.client.get(PODS, "agent-node-1", "dra-cpu-system")
        (agent,) = pod["status"]["containerStatuses"]
        return agent["ready"], agent["restartCount"]

    async def has_state(*expected: object) -> bool:
        return await shown() == expected

    await story.crash_agent("node-1")
    await story.until("its pod shows the crash", lambda: has_state(False, 0))
    await story.start_agent("node-1")
    await story.until("its pod shows the restart", lambda: has_state(True, 1))
    await story.pod("web", cpus=2)
    await story.until_running("web")
    path = PODS.path("agent-node-1", namespace="dra-cpu-system", subresource="log")
    async with aiohttp.request("GET", cluster.client.server + path, params={"tailLines": "1"}) as answer:
        assert "claim prepared" in await answer.text()


async def test_the_deletion_of_an_agents_pod_has_no_effect_on_other_pods(cluster: Sandbox, story: Story) -> None:
    await cluster.client.delete(PODS, "agent-node-1", "dra-cpu-system")
    await story.pod("web", cpus=2)
    await story.until_running("web")


async def test_an_invalid_config_is_rejected(cluster: Sandbox) -> None:
    with pytest.raises(InvalidError, match=r'spec\.mode: Unsupported value: "grupped"'):
        await cluster.client.patch(CONFIGS, "default", {"spec": {"mode": "grupped"}})


async def test_two_clusters_are_independent(cluster: Sandbox) -> None:
    async with Sandbox({"other": TINY}, config=None) as second:
        assert [config["metadata"]["name"] for config in await second.client.list(CONFIGS)] == []
        assert len(await cluster.client.list(CONFIGS)) == 1


async def test_a_used_port_is_reported_in_one_line_and_no_files_remain(cluster: Sandbox, tmp_path: Path) -> None:
    port = int(cluster.client.server.rpartition(":")[2])
    with pytest.raises(SandboxError, match=rf"cannot serve on port {port}: .*in use"):
        async with Sandbox({"node-1": LAB}, port=port, root=tmp_path):
            raise AssertionError("started on a port that is in use")
    assert left(tmp_path) == []


async def test_a_closed_sandbox_leaves_no_tasks_and_no_files(short_path: Path) -> None:
    tasks = asyncio.all_tasks()
    async with Sandbox({"node-1": LAB}, root=short_path) as sandbox:
        await sandbox.ready()
        client = sandbox.client
    with pytest.raises((UnreachableError, RuntimeError)):
        await client.list(PODS)
    assert asyncio.all_tasks() == tasks
    assert left(short_path) == []


async def test_the_reason_why_a_node_does_not_become_ready_is_reported() -> None:
    impossible = DEFAULT_CONFIG | {"spec": {"reservedCPUs": "0-7"}}
    async with Sandbox({"node-1": LAB}, config=impossible) as sandbox:
        with pytest.raises(SandboxError, match=r"node-1 has not become ready: ConfigApplied: .*reserved"):
            await sandbox.ready()


async def test_each_part_has_its_own_log_also_after_a_restart(cluster: Sandbox, story: Story) -> None:
    logs = cluster.kubeconfig.with_name("logs")
    await story.crash_agent("node-1")
    await story.start_agent("node-1")
    await story.until("its log has both", lambda: (logs / "node-1-agent.log").read_text().count("agent started") == 2)
    await story.until("the operator's too", lambda: "applied these settings" in (logs / "operator.log").read_text())


async def test_the_error_of_an_operator_that_stops_by_itself_is_raised(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="missing, or not complete"):
        await operate(tmp_path / "missing")

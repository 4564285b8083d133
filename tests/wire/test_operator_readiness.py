"""The operator is ready only while it follows everything that it needs, and says on /readyz what is missing."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
import yaml
from fake_agents import FakeAgents
from fake_api import FakeApi
from operator_world import World
from running_operator import QUICK, kubeconfig

from dracpu_operator.errors import WatchError

GROUP = "dra.cpu"


@dataclass
class Probed:
    """The operator as a process."""

    probes: aiohttp.ClientSession

    async def page(self, path: str = "/readyz") -> tuple[int, str]:
        async with self.probes.get(path) as answer:
            return answer.status, await answer.text()

    async def until(self, condition: Callable[[int, str], bool]) -> None:
        """Waits until the answer of /readyz is so."""
        async with asyncio.timeout(20):
            while not condition(*await self.page()):  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.02)


@asynccontextmanager
async def operator(api: FakeApi, folder: Path) -> AsyncIterator[Probed]:
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig(api.url)))
    arguments = ("--kubeconfig", str(file), "--http-address", "127.0.0.1:0", "--namespace", "agents")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dracpu_operator", "run", *arguments, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        found = re.search(rb'"http_port": (\d+)', await process.stderr.readline())
        assert found is not None
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{int(found[1])}", headers={"Connection": "close"}
        ) as probes:
            yield Probed(probes)
    finally:
        process.kill()
        await process.wait()


async def test_it_is_not_ready_before_the_api_server_describes_the_configs(tmp_path: Path) -> None:
    """As when the CRDs have just been created, or with an API server that is behind."""
    async with FakeApi() as api:
        api.hide_from_discovery(GROUP)
        async with operator(api, tmp_path) as operating:
            expected = "cpudriverconfigs have not been listed yet: the API server does not describe them yet\n"
            await operating.until(lambda status, text: (status, text) == (503, expected))
            api.hide_from_discovery()
            await operating.until(lambda status, text: (status, text) == (200, "ok\n"))
            _, metrics = await operating.page("/metrics")
            for resource in ("cpudriverconfigs", "nodes", "cpunodes", "pods", "daemonsets"):
                assert f'dra_cpu_operator_following{{resource="{resource}"}} 1.0' in metrics
            api.add("nodes", {"metadata": {"name": "n1"}})
            api.add("cpudriverconfigs", {"metadata": {"name": "all"}, "spec": {}})
            await api.until(lambda: api.all("cpunodes"))


@pytest.mark.parametrize("kind", ["cpudriverconfigs", "nodes", "cpunodes", "daemonsets"])
async def test_it_is_not_ready_before_every_watch_was_accepted(tmp_path: Path, kind: str) -> None:
    async with FakeApi() as api:
        api.fail(f"WATCH {kind}", 503, "ServiceUnavailable", "not yet", times=100_000)
        async with operator(api, tmp_path) as operating:
            await operating.until(
                lambda status, text: status == 503 and text.startswith(f"no watch of {kind} has been accepted yet: ")
            )
            api.heal()
            await operating.until(lambda status, text: status == 200)


async def test_it_is_ready_without_the_permission_to_follow_pods_and_a_metric_shows_that(tmp_path: Path) -> None:
    """As with the Role of an earlier version of the chart."""
    async with FakeApi() as api:
        api.fail("GET pods", 403, "Forbidden", "cannot list pods", times=100_000)
        async with operator(api, tmp_path) as operating:
            await operating.until(lambda status, text: status == 200)
            _, metrics = await operating.page("/metrics")
            assert 'dra_cpu_operator_following{resource="pods"} 0.0' in metrics
            assert 'dra_cpu_operator_following{resource="daemonsets"} 1.0' in metrics


async def test_it_ends_when_the_api_server_never_describes_the_configs(tmp_path: Path) -> None:
    async def serve(world: World) -> None:
        async with world.operator(replace(QUICK, discovery=0.2)) as operating:
            await operating.ended()

    async with FakeApi() as api:
        api.hide_from_discovery(GROUP)
        with pytest.raises(WatchError, match="cpudriverconfigs.dra.cpu can be listed, but the API server has not"):
            await serve(World(api, FakeAgents(api), tmp_path))

"""The operator as a process: probes, SIGTERM, errors in one line; and its API client."""

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from fake_api import FakeApi
from kubernetes_asyncio.client import Configuration
from running_operator import kubeconfig

from dracpu_api.errors import ConflictError, ForbiddenError, UnavailableError
from dracpu_api.resources import CPU_NODES, NODES
from dracpu_api.serving.exchange import CONNECTIONS_OF_A_PEER
from dracpu_api.watchdog import watch_process
from dracpu_operator import app, logging
from dracpu_operator.__main__ import main
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.http import Reasons
from dracpu_operator.options import RunOptions


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dracpu_operator", "run", *arguments, stderr=asyncio.subprocess.PIPE
    )


async def test_probes_answer_and_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    async with FakeApi() as api:
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig(api.url)))
        api.add("nodes", {"metadata": {"name": "n1"}})
        api.add("cpudriverconfigs", {"metadata": {"name": "all"}, "spec": {}})
        process = await start("--kubeconfig", str(file), "--http-address", "127.0.0.1:0", "--namespace", "agents")
        assert process.stderr is not None
        started = await process.stderr.readline()
        port = int(re.search(rb'"http_port": (\d+)', started)[1])  # type: ignore[index]
        await api.until(lambda: api.all("cpunodes") and api.watching >= 5, seconds=30)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_OF_A_PEER + 1)]
        with contextlib.suppress(ConnectionResetError):
            assert await idle[0][0].read() == b"", "the oldest idle connection yields"
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers={"Connection": "close"}) as probes:
            async with asyncio.timeout(20):  # until the answers to the last watches have arrived
                while (await probes.get("/readyz")).status != 200:  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(0.02)
            pages = {}
            for path in ("/healthz", "/readyz", "/metrics"):
                async with probes.get(path) as answer:
                    pages[path] = (answer.status, await answer.text())
        for _, writer in idle:
            writer.close()
        process.send_signal(signal.SIGTERM)
        _, rest = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 0, rest.decode()
        assert b"Traceback" not in rest
    assert pages["/healthz"] == pages["/readyz"] == (200, "ok\n")
    assert 'dra_cpu_operator_nodes{config="all",state="selected"} 1.0' in pages["/metrics"][1]


async def test_the_process_watches_whether_a_reconcile_hangs(tmp_path: Path) -> None:
    watched: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()

    async def watch(live: Reasons) -> None:
        watched.set_result(live())

    async with FakeApi() as api:
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig(api.url)))
        stop = asyncio.Event()
        options = RunOptions(file, "127.0.0.1:0", "json", "error")
        running = asyncio.create_task(app.run(options, stop=stop, watch_process=watch))
        assert await watched == []
        stop.set()
        await running


def test_the_command_runs_the_operator_under_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    async def run(_options: RunOptions, *, watch_process: object) -> None:
        given.append(watch_process)

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(logging, "configure", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["dracpu-operator", "run"])
    main()
    assert given == [watch_process]


async def test_a_missing_kubeconfig_is_reported_in_one_line(tmp_path: Path) -> None:
    process = await start("--kubeconfig", str(tmp_path / "none"))
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert errors.decode().splitlines()[-1].startswith(f"dracpu-operator: the kubeconfig {tmp_path}/none is missing")


@asynccontextmanager
async def client(api: FakeApi) -> AsyncIterator[Cluster]:
    async with Cluster(Configuration(host=api.url)) as cluster:
        yield cluster


async def test_a_long_list_is_read_page_by_page() -> None:
    async with FakeApi() as api, client(api) as cluster:
        for number in range(1201):
            api.add("nodes", {"metadata": {"name": f"n{number:04}"}})
        listed = [raw["metadata"]["name"] async for raw in cluster.items(NODES, metadata_only=True)]
        assert listed == [f"n{number:04}" for number in range(1201)]
        assert len(api.requests) == 3
        assert "as=PartialObjectMetadataList" in api.requests[0].headers["Accept"]


async def test_a_refusal_is_an_error_with_the_servers_message() -> None:
    async with FakeApi() as api, client(api) as cluster:
        api.fail("GET", 403, "Forbidden", "because")
        with pytest.raises(ForbiddenError, match="GET /apis/dra.cpu/v1alpha1/cpunodes/n1: Forbidden: because"):
            await cluster.read(CPU_NODES, "n1")


async def test_a_lost_answer_has_its_own_error() -> None:
    async with FakeApi() as api, client(api) as cluster:
        api.add("cpunodes", {"metadata": {"name": "n1"}})
        api.lose_answer("GET", times=2)  # the client tries again on a reused connection
        with pytest.raises(UnavailableError, match="GET /apis/dra.cpu/v1alpha1/cpunodes/n1"):
            await cluster.read(CPU_NODES, "n1")


async def test_an_object_is_deleted_only_when_it_has_the_given_uid() -> None:
    async with FakeApi() as api, client(api) as cluster:
        made = api.add("cpunodes", {"metadata": {"name": "n1"}})
        with pytest.raises(ConflictError):
            await cluster.delete(CPU_NODES, "n1", "another")
        await cluster.delete(CPU_NODES, "n1", made["metadata"]["uid"])
        assert api.all("cpunodes") == []

"""An agent's token can write only the slices of its node's pool, and can be kept from reading other nodes' CpuNodes.

The API server is real and has the chart's roles and policies; no emulated node is used.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import running_operator
from aiohttp import web
from aiohttp.test_utils import TestServer
from background import background
from guarded_server import NODES, POLICIES, SLICES, Client, Guarded, eventually, guarded_server
from helm_chart import ROOT

from dracpu_agent.cluster.cpunode import CpuNodeWatch
from dracpu_agent.cluster.slices.controller import SliceController, SlicesState, SliceTiming
from dracpu_agent.devices.device import Device
from dracpu_api.cpuset import CpuSet
from dracpu_api.names import DRIVER
from dracpu_api.resources import CPU_NODES

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

OWN, OTHER = NODES
FOREIGN: Final = "gpu.example.com"
SPEC: Final = {"config": {"name": "default", "generation": 1}, "settings": {}, "revision": "1"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    """An API server that also serves the versions of slices from before v1."""
    folder = tmp_path_factory.mktemp("guarded")
    older = "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"
    async with guarded_server(folder, options=older) as running:
        yield running


@pytest.fixture
def unlimited(server: Guarded) -> Client:
    """The first node's agent, with every right that RBAC can give."""
    return server.unlimited(OWN)


# ---- slices


def slice_of(node: str, *, pool: str = "", driver: str = DRIVER, **spec: Any) -> Json:
    """A slice that offers one device."""
    named = {"name": pool or node, "generation": 1, "resourceSliceCount": 1}
    where = {"nodeName": node} if node else {}
    offered = [{"name": "cpudev000"}]
    return {
        "metadata": {"generateName": "made-"},
        "spec": {"driver": driver, "pool": named, "devices": offered, **where, **spec},
    }


@asynccontextmanager
async def stored(server: Guarded, body: Json) -> AsyncIterator[Json]:
    """A slice that exists; nothing happens when it is gone in the end."""
    made = await server.admin.good("POST", SLICES, body)
    try:
        yield made
    finally:
        await server.admin.call("DELETE", f"{SLICES}/{made['metadata']['name']}")


class Publishing:
    """The agent's slices of its node."""

    def __init__(self) -> None:
        self.states: list[SlicesState] = []
        self.changed = asyncio.Event()

    def record(self, state: SlicesState) -> None:
        self.states.append(state)
        self.changed.set()

    async def until(self, *, published: bool, devices: int) -> None:
        async with asyncio.timeout(20):
            while not self.states or (self.states[-1].published, self.states[-1].devices) != (published, devices):
                self.changed.clear()
                await self.changed.wait()


async def test_the_agent_publishes_changes_and_withdraws_the_slices_of_its_node(server: Guarded) -> None:
    kept = Publishing()
    async with server.agent(OWN) as api, stored(server, slice_of(OWN, pool="left-over")):
        controller = SliceController(api, DRIVER, OWN, kept.record, timing=SliceTiming(debounce=0.01))
        async with background(controller.run()):
            for numbers in (range(100), range(3), range(200)):
                controller.publish([Device(f"cpudev{number:03}", CpuSet([number]), {}) for number in numbers])
                await kept.until(published=True, devices=len(numbers))
                assert {found["spec"]["pool"]["name"] for found in await server.slices()} == {OWN}
            controller.withdraw()
            await kept.until(published=False, devices=0)
    assert await server.slices() == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (slice_of(OWN, pool=OTHER), f"the agent of node {OWN} cannot write a ResourceSlice of pool {OTHER}"),
        (slice_of(OWN, pool=f"{OWN}/x"), f"the agent of node {OWN} cannot write a ResourceSlice of pool {OWN}/x"),
        (slice_of(OTHER), f"the agent of node {OWN} cannot write a ResourceSlice of node {OTHER}"),
        (
            slice_of("", pool=OWN, allNodes=True),
            f"the agent of node {OWN} cannot write a ResourceSlice of no single node",
        ),
        (slice_of(OWN, driver=FOREIGN), f"the agent cannot write a ResourceSlice of driver {FOREIGN}"),
    ],
)
async def test_an_agent_cannot_write_other_slices(server: Guarded, unlimited: Client, body: Json, words: str) -> None:
    for client in (unlimited, server.holder(OWN)):
        for version in ("v1", "v1beta2"):
            path = SLICES.replace("/v1/", f"/{version}/", 1)
            assert words in await client.refused("POST", path, body)
        async with stored(server, body) as made:
            path = f"{SLICES}/{made['metadata']['name']}"
            changed = {**made, "spec": {**made["spec"], "devices": []}}
            assert words in await client.refused("PUT", path, changed)
            if "cannot write a ResourceSlice of pool" not in words:
                assert words in await client.refused("DELETE", path)
            assert await server.admin.good("GET", path) == made


async def test_a_token_without_a_node_cannot_write_slices(server: Guarded) -> None:
    for client in (server.unlimited(""), server.holder("")):
        assert "the agent's token names no node" in await client.refused("POST", SLICES, slice_of(OWN))


async def test_an_agent_deletes_a_slice_of_its_node_in_a_wrong_pool(server: Guarded) -> None:
    """A slice of its node that was forged before the policy was installed would otherwise stay."""
    async with stored(server, slice_of(OWN, pool=OTHER)) as made:
        await server.holder(OWN).good("DELETE", f"{SLICES}/{made['metadata']['name']}")
    assert await server.slices() == []


# ---- the status of its CpuNode


async def test_an_agent_writes_its_status_except_what_the_operator_reports_about_the_agent(server: Guarded) -> None:
    path, merge = f"{CPU_NODES.path(OWN)}/status", "merge"
    await server.admin.good("POST", CPU_NODES.path(), cpu_node_of(OWN))
    holder = server.holder(OWN)
    own = {"phase": "Ready"}
    assert "status.agent is written by the operator alone" in await holder.refused(
        "PATCH", path, {"status": {**own, "agent": {"ready": True}}}, merge
    )
    await holder.good("PATCH", path, {"status": own}, merge)
    await server.admin.good("PATCH", path, {"status": {"agent": {"ready": False, "reason": "Error"}}}, merge)
    for forged in ({"ready": True}, {"reason": "Ready"}, {"since": "9999-12-31T23:59:59Z"}):
        assert "status.agent" in await holder.refused("PATCH", path, {"status": {"agent": forged}}, merge)
    await holder.good("PATCH", path, {"status": {"phase": "Settling"}}, merge)
    # as an agent of a version that does not know the field
    await holder.good("PATCH", path, {"status": {"agent": None}}, merge)
    await server.admin.good("DELETE", CPU_NODES.path(OWN))


def cpu_node_of(node: str) -> Json:
    return {"apiVersion": CPU_NODES.api_version, "kind": CPU_NODES.kind, "metadata": {"name": node}, "spec": SPEC}


# ---- reads


async def test_with_the_pages_authorizer_an_agent_reads_only_its_own_cpu_node(tmp_path: Path) -> None:
    config, kubeconfig = tmp_path / "authorization.yaml", tmp_path / "refuse-all.kubeconfig"
    page = (ROOT / "docs" / "user" / "security.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    config.write_text(block.replace("/etc/kubernetes/refuse-all.kubeconfig", str(kubeconfig)))
    webhook = web.Application()
    webhook.router.add_post("/", refuse_all)
    async with TestServer(webhook) as refusing:
        kubeconfig.write_text(json.dumps(running_operator.kubeconfig(str(refusing.make_url("/")))))
        async with guarded_server(tmp_path, options=f"--authorization-config={config}") as server:
            await reads_only_its_own_cpu_node(server)


async def refuse_all(request: web.Request) -> web.Response:
    """Answers as an authorization webhook that allows nothing."""
    review = await request.json()
    return web.json_response({**review, "status": {"allowed": False, "denied": True}})


async def reads_only_its_own_cpu_node(server: Guarded) -> None:
    for node in NODES:
        await server.admin.good("POST", CPU_NODES.path(), cpu_node_of(node))
    holder = server.holder(OWN)
    own = await holder.good("GET", CPU_NODES.path(), fieldSelector=f"metadata.name={OWN}")
    assert [item["metadata"]["name"] for item in own["items"]] == [OWN]
    for selector in ({}, {"fieldSelector": f"metadata.name={OTHER}"}, {"fieldSelector": f"metadata.name!={OWN}"}):
        await holder.refused("GET", CPU_NODES.path(), **selector)
    watching = CpuNodeWatching()
    async with server.agent(OWN) as api, background(CpuNodeWatch(api, OWN, watching.record).run()):
        assert await watching.first() == SPEC


class CpuNodeWatching:
    """Receives the spec that the agent reads."""

    def __init__(self) -> None:
        self._first: asyncio.Future[Json | None] = asyncio.get_running_loop().create_future()

    def record(self, spec: Json | None) -> None:
        if not self._first.done():
            self._first.set_result(spec)

    async def first(self) -> Json | None:
        async with asyncio.timeout(20):
            return await self._first


# ---- the policies themselves


async def test_the_api_server_finds_no_wrong_type_in_the_policies(tmp_path: Path) -> None:
    """The API server checks the types of a policy only for kinds, not for subresources, so the test names the kind."""
    async with guarded_server(tmp_path, controllers=True) as server:
        policies = (await server.admin.good("GET", POLICIES))["items"]
        assert len(policies) == 3
        for policy in policies:
            rules = policy["spec"]["matchConstraints"]["resourceRules"]
            for rule in rules:
                rule["resources"] = [resource.removesuffix("/status") for resource in rule["resources"]]
            rules[0]["resources"] = list(dict.fromkeys(rules[0]["resources"]))
            name = policy["metadata"]["name"]
            metadata = {"name": f"{name}-of-the-kind"}
            await server.admin.good("POST", POLICIES, {"metadata": metadata, "spec": policy["spec"]})
            assert await types_checked(server, metadata["name"]) == {}, name
            assert await types_checked(server, name) == {}


async def types_checked(server: Guarded, name: str) -> Json:
    """Waits until the types of a policy's latest generation are checked, and returns what was found."""
    checked: list[Json] = []

    async def is_checked() -> bool:
        found = await server.admin.good("GET", f"{POLICIES}/{name}")
        status = found.get("status") or {}
        if status.get("observedGeneration") == found["metadata"]["generation"]:
            checked.append(status["typeChecking"])
        return bool(checked)

    await eventually(is_checked, seconds=60)
    return checked[0]

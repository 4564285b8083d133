"""The real agent between a fake API server, a fake kubelet and a fake runtime: real bytes over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fake_api import FakeApi
from fake_kubelet import FakeKubelet, RegisteredPlugin, kubelet_root
from fake_runtime import FakePod, FakeRuntime
from nodes import NODE, machine, spec

from dracpu_agent.app import Agent
from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.options import RunOptions
from dracpu_agent.topology.model import Topology
from dracpu_api.settings import CpuNodeSpec, encode_spec


class WholeNode:
    """A node of a cluster: what a test drives and looks at."""

    def __init__(self, root: Path, api: FakeApi, runtime: FakeRuntime, topology: Topology) -> None:
        self.root = root
        self.api = api
        self.runtime = runtime
        self.topology = topology
        self.agent: Agent | None = None
        self.plugin: RegisteredPlugin | None = None
        self._stack = contextlib.AsyncExitStack()
        self._pods = 0

    @property
    def kubelet(self) -> RegisteredPlugin:
        """The driver as the kubelet knows it."""
        assert self.plugin is not None
        return self.plugin

    @property
    def status(self) -> dict[str, Any]:
        """CpuNode.status."""
        return dict(self.api.get("cpunodes", NODE).get("status") or {})

    def condition(self, kind: str) -> dict[str, Any]:
        """One condition of the CpuNode; empty while there is none."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    def devices(self) -> dict[str, Any]:
        """The published devices by name."""
        return {
            device["name"]: device
            for one in self.api.all("resourceslices")
            for device in one["spec"].get("devices") or ()
        }

    def configure(self, settings: CpuNodeSpec) -> None:
        """Writes the CpuNode as the operator would."""
        body = {"metadata": {"name": NODE}, "spec": encode_spec(settings)}
        if any(one["metadata"]["name"] == NODE for one in self.api.all("cpunodes")):
            self.api.edit("cpunodes", NODE, lambda node: node.update(spec=body["spec"]))
        else:
            self.api.add("cpunodes", body)

    def claim(self, made: dict[str, Any]) -> None:
        """An allocated claim, as the scheduler leaves it."""
        self.api.add("resourceclaims", made, namespace="default")

    def pod(self) -> FakePod:
        """One more pod."""
        self._pods += 1
        name = f"pod-{self._pods}"
        return FakePod(name=name, uid=name, namespace="default")

    async def start_agent(self) -> None:
        """A new process: connects everywhere and is registered."""
        options = RunOptions(
            node_name=NODE,
            kubeconfig=None,
            kubelet_root=self.root,
            sysfs_root=Path("/nonexistent"),
            procfs_root=Path("/nonexistent"),
            cdi_dir=self.root / "cdi",
            nri_socket=self.runtime.socket,
            state_dir=self.root / "state",
            http_address="127.0.0.1:0",
            log_format="text",
            log_level="error",
        )
        client = await self._stack.enter_async_context(ApiClient(ApiAccess(self.api.url), version="test"))
        self.agent = Agent(options, self.topology, client)
        running = asyncio.create_task(self.agent.run())
        self._stack.push_async_callback(_end, running)
        kubelet = await self._stack.enter_async_context(FakeKubelet(self.root))
        self.plugin = await kubelet.register("dra.cpu")
        await self.runtime.synchronized()

    async def stop_agent(self) -> None:
        """SIGTERM."""
        await self._stack.aclose()
        self.agent = self.plugin = None

    async def ready(self) -> None:
        """Waits until the CpuNode says so."""
        await self.api.until(lambda: self.status.get("phase") == "Ready")


@contextlib.asynccontextmanager
async def whole_node(settings: CpuNodeSpec | None = None, topology: Topology | None = None) -> AsyncIterator[WholeNode]:
    """A node with its agent running and, when it has settings, ready."""
    with kubelet_root() as root:
        async with FakeApi() as api, FakeRuntime(root / "nri.sock") as runtime:
            api.add("nodes", {"metadata": {"name": NODE}})
            node = WholeNode(root, api, runtime, topology or machine())
            try:
                node.configure(settings or spec())
                await node.start_agent()
                await node.ready()
                yield node
            finally:
                await node.stop_agent()


async def _end(running: "asyncio.Task[None]") -> None:
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running

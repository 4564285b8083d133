"""The real agent between a fake API server, a fake kubelet and a fake runtime: real bytes over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from fake_api import FakeApi
from fake_kubelet import FakeKubelet, kubelet_root
from nodes import NODE, machine, spec

from dracpu_agent.app import Agent
from dracpu_agent.cli.options import RunOptions
from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.topology.topology import Topology
from dracpu_api.settings import CpuNodeSpec, encode_spec
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime
from dracpu_sandbox.node.plugins import RegisteredPlugin


class WholeNode:
    """A node of a cluster: what a test drives and looks at."""

    def __init__(self, root: Path, api: FakeApi, runtime: NriRuntime, topology: Topology) -> None:
        self.root = root
        self.api = api
        self.runtime = runtime
        self.topology = topology
        self.tree = (Path("/nonexistent"), Path("/nonexistent"))  # sysfs and procfs, for what is read while it runs
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

    def pod(self) -> PodSandbox:
        """One more pod."""
        self._pods += 1
        name = f"pod-{self._pods}"
        return PodSandbox(name=name, uid=name, namespace="default")

    @property
    def options(self) -> RunOptions:
        """What the agent is started with."""
        sysfs_root, procfs_root = self.tree
        return RunOptions(
            node_name=NODE,
            kubeconfig=None,
            kubelet_root=self.root,
            sysfs_root=sysfs_root,
            procfs_root=procfs_root,
            cdi_dir=self.root / "cdi",
            nri_socket=self.runtime.socket,
            state_dir=self.root / "state",
            http_address="127.0.0.1:0",
            status_interval=5.0,
            log_format="text",
            log_level="error",
        )

    async def start_agent(self) -> None:
        """A new process: connects everywhere and is registered."""
        client = await self._stack.enter_async_context(ApiClient(ApiAccess(self.api.url), version="test"))
        self.agent = Agent(self.options, self.topology, client)
        running = asyncio.create_task(self.agent.run())
        self._stack.push_async_callback(_end, running)
        kubelet = await self._stack.enter_async_context(FakeKubelet(self.root))
        self.plugin = await kubelet.register("dra.cpu")
        await self.runtime.synchronized()

    def read_machine_again(self) -> None:
        """SIGHUP."""
        assert self.agent is not None
        self.agent.read_machine_again()

    async def stop_agent(self) -> None:
        """SIGTERM."""
        await self._stack.aclose()
        self.agent = self.plugin = None

    async def ready(self) -> None:
        """Waits until the CpuNode says so."""
        await self.api.until(lambda: self.status.get("phase") == "Ready")


@contextlib.asynccontextmanager
async def whole_node(
    settings: CpuNodeSpec | None = None,
    topology: Topology | None = None,
    tree: tuple[Path, Path] | None = None,
    gates: Iterable[str] = (),
) -> AsyncIterator[WholeNode]:
    """A node with its agent running and, when it has settings, ready; `gates` are on besides those that always are."""
    with kubelet_root() as root:
        async with FakeApi() as api, NriRuntime(root / "nri.sock") as runtime:
            api.gates.update(gates)
            api.add("nodes", {"metadata": {"name": NODE}})
            node = WholeNode(root, api, runtime, topology or machine())
            node.tree = tree or node.tree
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

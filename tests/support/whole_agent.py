"""Runs the real agent over real sockets with a fake API server, a fake kubelet and a fake runtime."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from fake_api import FakeApi
from fake_kubelet import FakeKubelet, kubelet_root
from nodes import NODE, machine, spec, uid

from dracpu_agent.app import Agent
from dracpu_agent.cli.options import RunOptions
from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.service import Companion, Shared
from dracpu_agent.topology.topology import Topology
from dracpu_api.settings import CpuNodeSpec, encode_spec
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime
from dracpu_sandbox.node.plugins import RegisteredPlugin


class WholeNode:
    """One node with its agent, with methods to change and read the objects of the node."""

    def __init__(
        self,
        root: Path,
        api: FakeApi,
        runtime: NriRuntime,
        topology: Topology,
        others: Callable[[], Sequence[Driver[Any, Any]]] = tuple,
        companion: Callable[[Any, Shared], Companion] | None = None,
    ) -> None:
        """`others` makes the drivers beside the one of CPUs, for each start of the agent; `companion` makes what the
        first of them needs besides."""
        self.root = root
        self.api = api
        self.runtime = runtime
        self.topology = topology
        self.tree = (Path("/nonexistent"), Path("/nonexistent"))  # the sysfs and procfs that the agent reads later
        self.memory_nodes: Path | None = None  # where the agent may write how many hugepages there are
        self.agent: Agent | None = None
        self.plugins: dict[str, RegisteredPlugin] = {}  # by driver
        self._others = others
        self._companion = companion
        self._stack = contextlib.AsyncExitStack()
        self._running: asyncio.Task[None] | None = None
        self._pods = 0

    @property
    def kubelet(self) -> RegisteredPlugin:
        """The driver of CPUs, which the kubelet has registered."""
        return self.plugins["dra.cpu"]

    @property
    def status(self) -> dict[str, Any]:
        """The status of the CpuNode."""
        return dict(self.api.get("cpunodes", NODE).get("status") or {})

    def condition(self, kind: str) -> dict[str, Any]:
        """Returns one condition of the CpuNode, or an empty one while the CpuNode does not have it."""
        conditions = self.status.get("conditions", ())
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def devices(self) -> dict[str, Any]:
        """Returns the published devices by name."""
        return {
            device["name"]: device
            for item in self.api.all("resourceslices")
            for device in item["spec"].get("devices") or ()
        }

    def configure(self, settings: CpuNodeSpec) -> None:
        """Writes the CpuNode, as the operator does."""
        body = {"metadata": {"name": NODE}, "spec": encode_spec(settings)}
        if any(item["metadata"]["name"] == NODE for item in self.api.all("cpunodes")):
            self.api.edit("cpunodes", NODE, lambda node: node.update(spec=body["spec"]))
        else:
            self.api.add("cpunodes", body)

    def claim(self, allocated: dict[str, Any]) -> None:
        """Adds an allocated claim."""
        self.api.add("resourceclaims", allocated, namespace="default")

    async def granted(self, number: int) -> None:
        """Waits until the agent has granted CPUs to a claim, which is before its Prepare is answered."""
        assert self.agent is not None
        state, changed = self.agent.node, asyncio.Event()
        state.on_change(changed.set)
        async with asyncio.timeout(30):
            while uid(number) not in state.claims:
                changed.clear()
                await changed.wait()

    def pod(self) -> PodSandbox:
        """Returns the sandbox of a new pod."""
        self._pods += 1
        name = f"pod-{self._pods}"
        return PodSandbox(name=name, uid=name, namespace="default")

    @property
    def options(self) -> RunOptions:
        """The options that the agent is started with."""
        sysfs_root, procfs_root = self.tree
        return RunOptions(
            node_name=NODE,
            kubeconfig=None,
            kubelet_root=self.root,
            sysfs_root=sysfs_root,
            procfs_root=procfs_root,
            cgroupfs_root=sysfs_root / "fs/cgroup",
            cgroup_root="",
            memory_cgroups=self.root / "cgroups",
            memory_nodes=self.memory_nodes,
            cdi_dir=self.root / "cdi",
            nri_socket=self.runtime.socket,
            state_dir=self.root / "state",
            http_address="127.0.0.1:0",
            status_interval=5.0,
            log_format="text",
            log_level="error",
        )

    async def start_agent(self, *, pins: bool = True) -> None:
        """Starts an agent and waits until the kubelet has registered it and, if it pins containers on this machine, the
        runtime is synchronized."""
        client = await self._stack.enter_async_context(ApiClient(ApiAccess(self.api.url), version="test"))
        others = self._others()
        companion = partial(self._companion, others[0]) if self._companion else None
        self.agent = Agent(self.options, self.topology, client, others, companion)
        self._running = asyncio.create_task(self.agent.run())
        self._stack.push_async_callback(_end, self._running)
        await self.start_kubelet()
        if pins:
            await self.runtime.synchronized()

    async def start_kubelet(self) -> None:
        """Starts a kubelet, which registers the drivers; a second one stands for a restarted kubelet."""
        kubelet = await self._stack.enter_async_context(FakeKubelet(self.root))
        assert self.agent is not None
        self.plugins = {driver: await kubelet.register(driver) for driver in self.agent.node.holdings}

    async def probe(self, path: str) -> tuple[int, str]:
        """Returns the status and the text of a page that the agent serves over HTTP."""
        assert self.agent is not None
        address = f"http://127.0.0.1:{self.agent.http_port}{path}"
        async with aiohttp.ClientSession() as client, client.get(address) as answer:
            return answer.status, await answer.text()

    def read_machine_again(self) -> None:
        """Does what the agent does on SIGHUP."""
        assert self.agent is not None
        self.agent.read_machine_again()

    def terminate_agent(self) -> None:
        """Does what the agent does on SIGTERM, while the kubelet stays connected; `stop_agent` waits for the end."""
        assert self._running is not None
        self._running.cancel()

    async def stop_agent(self) -> None:
        """Ends the agent and the fake kubelet."""
        await self._stack.aclose()
        self.agent = None
        self.plugins.clear()

    async def ready(self) -> None:
        """Waits until the CpuNode's phase is Ready."""
        await self.api.until(lambda: self.status.get("phase") == "Ready")


@contextlib.asynccontextmanager
async def whole_node(
    settings: CpuNodeSpec | None = None,
    topology: Topology | None = None,
    tree: tuple[Path, Path] | None = None,
    gates: Iterable[str] = (),
    runtime_at: Callable[[Path], NriRuntime] = NriRuntime,
    others: Callable[[], Sequence[Driver[Any, Any]]] = tuple,
    companion: Callable[[Any, Shared], Companion] | None = None,
) -> AsyncIterator[WholeNode]:
    """Starts a node with its agent and waits until it is ready; `gates` are feature gates that are enabled, too."""
    with kubelet_root() as root:
        async with FakeApi() as api, runtime_at(root / "nri.sock") as runtime:
            api.gates.update(gates)
            api.add("nodes", {"metadata": {"name": NODE}})
            node = WholeNode(root, api, runtime, topology or machine(), others, companion)
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

"""The whole sandbox: an API server, a scheduler and controllers, the real operator, and nodes with the real agent.

async with Sandbox({"node-1": XEON}) as sandbox:
    await sandbox.ready()
    await sandbox.client.create(PODS, {...})
"""

import asyncio
import contextlib
import contextvars
import json
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from dracpu_api.errors import DriverError
from dracpu_sandbox.agentpods import AgentPods, node_of_agent
from dracpu_sandbox.binaries import real
from dracpu_sandbox.client import KubeClient
from dracpu_sandbox.controlplane import built_in
from dracpu_sandbox.errors import SandboxError, cause
from dracpu_sandbox.folder import KUBECONFIG, folder
from dracpu_sandbox.install import DEFAULT_CONFIG, NAMESPACE, install
from dracpu_sandbox.logs import WRITER, recorded
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.node.agents import AgentKind
from dracpu_sandbox.node.delays import Delays
from dracpu_sandbox.node.kubelet import NoContainerError
from dracpu_sandbox.node.node import SimulatedNode
from dracpu_sandbox.operating import operate
from dracpu_sandbox.resources import CPU_NODES, JsonObject, conditions_of
from dracpu_sandbox.waiting import either, mirrored

_STARTED_AT_ONCE: Final = 8  # nodes; more would miss the kubelet's registration deadlines


@dataclass(eq=False)
class Sandbox:
    """A cluster that runs while the `async with` block is open; `machines` maps node names to machines."""

    machines: Mapping[str, Machine]
    _: KW_ONLY
    port: int = 0
    root: Path | None = None
    config: JsonObject | None = field(default_factory=lambda: DEFAULT_CONFIG)
    agent: AgentKind = "task"
    delays: Delays = field(default_factory=Delays)
    assets: Path | None = None
    progress: Callable[[str], object] = lambda line: None
    echo: TextIO | None = None
    kubeconfig: Path = field(default=Path(), init=False)
    nodes: dict[str, SimulatedNode] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._client: KubeClient | None = None
        self._started = asyncio.Event()
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @property
    def client(self) -> KubeClient:
        """A client of the API server."""
        assert self._client is not None
        return self._client

    async def __aenter__(self) -> Self:
        # a separate task, because a test may enter and leave the block in different tasks
        self._running = asyncio.create_task(self._run(), name="sandbox")
        try:
            await either(self._started.wait(), self.ended())
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.wait({self._running})
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        await self.ended()

    async def ended(self) -> None:
        """Waits until the cluster has stopped, and raises the error that stopped it, if any."""
        assert self._running is not None
        try:
            await asyncio.shield(self._running)
        except ExceptionGroup as errors:
            raise cause(errors) from errors

    async def ready(self, seconds: float = 60.0) -> None:
        """Waits until every node offers its CPUs."""
        async with mirrored(self.client, CPU_NODES) as mirror:

            def in_phase(*phases: str) -> list[str]:
                return [name for name in self.nodes if _phase(mirror.get(name)) in phases]

            with contextlib.suppress(TimeoutError):
                await mirror.until(lambda: len(in_phase("Ready")) == len(self.nodes) or in_phase("Failed"), seconds)
            for name in self.nodes:
                if name not in in_phase("Ready"):
                    raise SandboxError(f"{name} has not become ready: {_why(mirror.get(name))}")

    async def _run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            place = stack.enter_context(folder(self.root))
            stack.enter_context(recorded(place / "logs", self.echo))
            plane = await stack.enter_async_context(
                built_in(self.port, self._logs_of)
                if self.assets is None
                else real(self.assets, place / "control-plane", self.port)
            )
            self.progress(plane.name)
            self.kubeconfig = place / KUBECONFIG
            self.kubeconfig.write_text(json.dumps(plane.kubeconfig, indent=1))
            self._client = await stack.enter_async_context(KubeClient.from_kubeconfig(self.kubeconfig))
            await install(self._client, self.config)
            self.progress("CRDs, DeviceClass, CpuDriverConfig")
            async with asyncio.TaskGroup() as group:
                parts = [group.create_task(part, name=name) for name, part in plane.parts(self._client).items()]
                agents = AgentPods(self._client)
                await agents.create(self.machines)
                parts.append(group.create_task(_operate(self.kubeconfig), name="operator"))
                self.progress("operator")
                parts.append(group.create_task(agents.run(), name="agents' pods"))
                nodes = await self._start_nodes(group, place, agents)
                self._started.set()
                await self._stopping.wait()
                for task in nodes:  # agents clean up while the API server still runs
                    task.cancel()
                await asyncio.wait(nodes)
                for part in parts:
                    part.cancel()

    async def _start_nodes(self, group: asyncio.TaskGroup, place: Path, agents: AgentPods) -> list[asyncio.Task[None]]:
        """Starts a few nodes at a time, and waits until all are up."""
        turns, running = asyncio.Semaphore(_STARTED_AT_ONCE), list[asyncio.Task[None]]()

        async def start(node: SimulatedNode) -> None:
            context = contextvars.copy_context()
            context.run(WRITER.set, node.name)
            async with turns:
                running.append(group.create_task(node.run(), name=f"node {node.name}", context=context))
                await node.up.wait()
            self.progress(f"{node.name}: {node.machine.name}")

        for name, machine in self.machines.items():
            self.nodes[name] = SimulatedNode(
                name,
                machine,
                self.kubeconfig,
                place / "nodes" / name,
                agent=self.agent,
                delays=self.delays,
                agent_log=self._agent_log(name),
                on_agent=agents.changed,
            )
        await asyncio.gather(*map(start, self.nodes.values()))
        return running

    def _logs_of(self, namespace: str, pod: str, container: str) -> str:
        """Returns the output of `kubectl logs`, which the API server reads from the node, as a real API server does."""
        if (agents_node := node_of_agent(namespace, pod)) in self.nodes:
            return self._agent_log(agents_node).read_text()
        for node in self.nodes.values():
            with contextlib.suppress(NoContainerError):
                return node.logs(namespace, pod, container)
        raise NoContainerError(f"no node runs container {container} of pod {namespace}/{pod}")

    def _agent_log(self, node: str) -> Path:
        return self.kubeconfig.with_name("logs") / f"{node}-agent.log"


async def _operate(kubeconfig: Path) -> None:
    try:
        await operate(kubeconfig, namespace=NAMESPACE)
    except DriverError as error:
        raise SandboxError(f"the operator has stopped: {error}") from error


def _phase(node: JsonObject | None) -> str:
    return str(((node or {}).get("status") or {}).get("phase", ""))


def _why(node: JsonObject | None) -> str:
    """Returns why a node is not ready, as its agent reports it."""
    if node is None:
        return "it does not have a CpuNode"
    problems = [
        f"{kind}: {condition['message'] or condition['reason']}"
        for kind, condition in conditions_of(node).items()
        if condition["status"] == "False"
    ]
    return "; ".join(problems) or "its agent has not reported anything"

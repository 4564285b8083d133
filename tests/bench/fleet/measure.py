"""What is measured with a fleet of one size, step by step."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from dracpu_api.resources import CONFIGS, CPU_NODES
from dracpu_operator.intervals import Intervals
from fleet import bare
from fleet.agents import Agents
from fleet.api import MERGE, Api
from fleet.audit import Request, counts
from fleet.cluster import Nodes, fill, object_bytes
from fleet.operator_process import Operator, control_plane_seconds, operator
from fleet.plane import BARE, OPERATOR, Plane, control_plane

_POOL: Final = "example.com/pool"
_LABELS: Final = 5
_ROLLOUT_SECONDS: Final = 900.0
_WRITES: Final = "patch cpunodes"

Report = Callable[[str], object]


@dataclass
class Figures:
    """The results for one size: figures by their name, and the operator's requests by the step."""

    nodes: int
    values: dict[str, str] = field(default_factory=dict)
    requests: dict[str, Counter[str]] = field(default_factory=dict)


async def measure(
    size: int, folder: Path, *, idle_seconds: float = 60.0, report: Report = lambda line: None
) -> Figures:
    """Measures everything with so many nodes."""
    async with control_plane(folder) as plane:
        began = time.monotonic()
        nodes = await fill(plane.admin, size)
        report(f"{size} nodes and their agents' pods created in {time.monotonic() - began:.0f} s")
        run = Run(plane, nodes, report)
        async with run.agents() as agents, run.operator() as running:
            first = await run.first_convergence(running, agents)
        await run.bare_client(*first)
        async with run.agents() as agents:
            async with run.operator() as running:
                await run.agents_answer(running, agents)
                async with background(nodes.report()):
                    await run.labels(running, agents)
                    await run.rollout(running, "mode change, 100 %", "100%", {"mode": "individual"})
                    await run.rollout(running, "mode change, 25 %", "25%", {"mode": "grouped"})
                    await run.idle(running, idle_seconds)
            await run.restart()
    return run.figures


class Run:
    """The steps. Each of them counts the operator's requests and its processor time."""

    def __init__(self, plane: Plane, nodes: Nodes, report: Report = lambda line: None) -> None:
        self.figures = Figures(len(nodes.names))
        self._plane = plane
        self._nodes = nodes
        self._report = report
        self._last: list[Request] = []  # of the last step
        self._used = 0.0  # the processor time of the last step, the control plane's included

    @contextlib.asynccontextmanager
    async def operator(self) -> AsyncIterator[Operator]:
        """Runs the operator, from the time on at which it has nothing to do any more."""
        async with operator(await self._plane.kubeconfig(OPERATOR), self._plane.folder) as running:
            await running.until_ready()
            await self._quiet(2)
            yield running

    @contextlib.asynccontextmanager
    async def agents(self) -> AsyncIterator[Agents]:
        """Follows the CpuNodes; the agents are silent until `agents_answer`."""
        agents = Agents(self._plane.admin)
        async with background(agents.run()):
            yield agents

    async def first_convergence(self, running: Operator, agents: Agents) -> tuple[float, float]:
        """Creates the first config. The agents are silent, because they would take the processors from the API server.
        Returns the seconds until the last CpuNode was written, and the processor time."""
        size = self.figures.nodes
        self._note("memory before the first config", f"{running.memory()[0]:.0f} MiB")
        async with self._step("first convergence", running):
            began = time.time()
            await self._create_config("default", {"rollout": {"settleSeconds": 1, "maxUnavailable": "100%"}})
            await agents.until(lambda: len(agents.given) == size, _ROLLOUT_SECONDS)
        took = max(request.at for request in self._last if _key(request) == _WRITES) - began
        self._note("first convergence", f"{took:.2f} s")
        self._note("first convergence: per node", f"{took / size * 1e3:.2f} ms")
        self._memory("first convergence", running)
        return took, self._used

    async def bare_client(self, operator_took: float, operator_used: float) -> None:
        """Deletes the CpuNodes, and has the bare client write them again. Compares it with what the operator took."""
        admin = self._plane.admin
        written, _ = await admin.items(CPU_NODES.path())
        bodies = bare.copies(written)
        await admin.send("DELETE", CPU_NODES.path())
        async with Api.of_kubeconfig(await self._plane.kubeconfig(BARE)) as client:
            used, served = time.process_time(), control_plane_seconds()
            took = await bare.write(client, bodies, Intervals().writers)
            used, served = time.process_time() - used, control_plane_seconds() - served
        self._note("bare client", f"{took:.2f} s")
        self._note("first convergence / bare client", f"{operator_took / took:.2f}")
        self._note("first convergence / bare client, by processor time", f"{operator_used / (used + served):.2f}")
        self._note("bare client: processor time", self._per_node(used))
        self._note("bare client: the control plane's", self._per_node(served))
        self._report(f"bare client: {took:.2f} s, {used:.2f} s of a processor and {served:.2f} s in the control plane")

    async def agents_answer(self, running: Operator, agents: Agents) -> None:
        """Starts the agents."""
        async with self._step("agents' first reports", running):
            agents.answer()
            took = await self._until_applied()
        self._note("agents' first reports until the status is complete", f"{took:.1f} s")
        bytes_of_one = await object_bytes(self._plane.admin, CPU_NODES.path(self._nodes.names[0]))
        self._note("size of a CpuNode", f"{bytes_of_one / 1024:.1f} KiB")
        self._memory("agents' first reports", running)

    async def labels(self, running: Operator, agents: Agents) -> None:
        """Changes a label so that another config selects the node, for some nodes one after the other."""
        spec = {"nodeSelector": {"matchLabels": {_POOL: "b"}}, "priority": 10, "rollout": {"maxUnavailable": "100%"}}
        await self._create_config("pool-b", spec | {"reservedCPUs": "0-3"})
        await self._quiet()
        times = []
        async with self._step(f"{_LABELS} labels, one after the other", running):
            for name in self._nodes.names[:_LABELS]:
                began = time.monotonic()
                await self._nodes.label(name, {_POOL: "b"})
                await agents.until(partial(_follows, agents, name, "pool-b"), 60)
                times.append(agents.given[name].at - began)
                await asyncio.sleep(1)
        self._note("one label to its CpuNode", f"{median(times):.2f} s, at most {max(times):.2f} s")
        for name in self._nodes.names[:_LABELS]:
            await self._nodes.label(name, {_POOL: None})
        await self._plane.admin.send("DELETE", CONFIGS.path("pool-b"))
        await agents.until(lambda: all(given.config == "default" for given in agents.given.values()), 60)
        await self._quiet()

    async def rollout(self, running: Operator, name: str, unavailable: str, changes: Mapping[str, Any]) -> None:
        """Changes the config of all nodes, and waits until all agents have applied it."""
        async with self._step(name, running):
            spec = {**changes, "rollout": {"settleSeconds": 1, "maxUnavailable": unavailable}}
            await self._plane.admin.send("PATCH", CONFIGS.path("default"), {"spec": spec}, content_type=MERGE)
            config = await self._plane.admin.read(CONFIGS.path("default"))
            took = await self._until_applied(config["metadata"]["generation"])
        self._note(f"{name}: until all nodes have applied it", f"{took:.1f} s")
        self._memory(name, running)

    async def idle(self, running: Operator, seconds: float) -> None:
        """Measures the operator while nothing happens but the kubelets' reports."""
        await self._quiet()
        async with self._step("idle", running):
            used, began = running.cpu_seconds, time.monotonic()
            await asyncio.sleep(seconds)
            share = (running.cpu_seconds - used) / (time.monotonic() - began)
        self._note("idle, with the kubelets' reports", f"{share * 100:.2f} % of a core")
        self._memory("idle", running)

    async def restart(self) -> None:
        """Starts the operator when all statuses are there, which takes the most memory."""
        began = time.monotonic()
        async with operator(await self._plane.kubeconfig(OPERATOR), self._plane.folder) as running:
            async with self._step("restart", running):
                await running.until_ready()
                self._note("restart until ready", f"{time.monotonic() - began:.1f} s")
                await self._quiet()
            self._memory("restart", running)

    async def _until_applied(self, generation: int = 0) -> float:
        """Waits until the config's status reports that all nodes have applied it; returns the seconds."""
        began = time.monotonic()
        async with asyncio.timeout(_ROLLOUT_SECONDS):
            while True:
                status = (await self._plane.admin.read(CONFIGS.path("default"))).get("status") or {}
                observed = status.get("observedGeneration", 0)
                if observed >= generation and status["nodes"]["applied"] == self.figures.nodes:
                    return time.monotonic() - began
                await asyncio.sleep(0.25)

    async def _quiet(self, seconds: float = 6.0) -> None:
        """Waits until the operator has requested nothing for some seconds."""
        follower = self._plane.audit.follower(OPERATOR)
        async with asyncio.timeout(_ROLLOUT_SECONDS):
            while True:
                await asyncio.sleep(seconds)
                if not follower.new():
                    return

    @contextlib.asynccontextmanager
    async def _step(self, name: str, running: Operator) -> AsyncIterator[None]:
        """Counts the requests and the processor time of a step."""
        follower = self._plane.audit.follower(OPERATOR)
        used, served, began = running.cpu_seconds, control_plane_seconds(), time.monotonic()
        yield
        await asyncio.sleep(1)  # the operator's status may follow
        took, used = time.monotonic() - began, running.cpu_seconds - used
        served = control_plane_seconds() - served
        self._used = used + served
        self._last = follower.new()
        self.figures.requests[name] = counts(self._last)
        self._note(f"{name}: processor time", self._per_node(used))
        self._note(f"{name}: the control plane's", self._per_node(served))
        requested = ", ".join(f"{count} {what}" for what, count in self.figures.requests[name].most_common())
        self._report(
            f"{name}: {took:.2f} s, {used:.2f} s of a processor and {served:.2f} s in the control plane; "
            f"requests: {requested or 'none'}"
        )
        refused = Counter(request.code for request in self._last if request.code >= 400)
        if refused:
            self._report(f"{name}: refused: {dict(refused)}")

    async def _create_config(self, name: str, spec: Mapping[str, Any]) -> None:
        body = {"apiVersion": CONFIGS.api_version, "kind": CONFIGS.kind, "metadata": {"name": name}, "spec": spec}
        await self._plane.admin.send("POST", CONFIGS.path(), body)

    def _memory(self, step: str, running: Operator) -> None:
        now, peak = running.memory()
        self._note(f"{step}: memory, and its peak", f"{now:.0f} MiB, {peak:.0f} MiB")
        self._report(f"{step}: memory {now:.0f} MiB, peak {peak:.0f} MiB")

    def _per_node(self, seconds: float) -> str:
        return f"{seconds:.2f} s, {seconds / self.figures.nodes * 1e3:.2f} ms per node"

    def _note(self, name: str, value: str) -> None:
        self.figures.values[name] = value


@contextlib.asynccontextmanager
async def background(work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Runs something beside the body."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.wait({task})


def _follows(agents: Agents, node: str, config: str) -> bool:
    return agents.given[node].config == config


def _key(request: Request) -> str:
    return f"{request.verb} {request.resource}"

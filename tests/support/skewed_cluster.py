"""A real API server with the operator and simulated nodes with agents, each in a version that a test chooses.

Operator and agents are processes, as in a cluster: two versions cannot be imported into one process.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from next_version import PRESENT, Version

from dracpu_api.names import ANNOTATION_REMOVE_AFTER
from dracpu_sandbox.binaries import real
from dracpu_sandbox.client import KubeClient, KubeError
from dracpu_sandbox.install import install
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.node.kubelet import NoContainerError
from dracpu_sandbox.node.node import SimulatedNode
from dracpu_sandbox.resources import CLAIMS, CONFIGS, CPU_NODES, CRDS, PODS, SLICES, JsonObject, conditions_of
from dracpu_sandbox.stories import manifests

_T = TypeVar("_T")

CONFIG: Final = "default"
NODES: Final = ("node-1", "node-2")
_PROBE: Final = "probe"  # a config that selects no node
_SECONDS: Final = 60.0  # for anything to happen, on a busy machine
_LOOK_SECONDS: Final = 0.1
_INITIALIZING: Final = 429  # the API server's answer for a moment after a CRD was replaced
_LATER: Final = {"removalSeconds": 61}  # fields of `rollout` that not every version has
_QUICK: Final = {"rollout": {"maxUnavailable": "100%", "settleSeconds": 1}}


class OperatorEndedError(Exception):
    """The operator has ended by itself; the message is the end of its log."""


class SkewedCluster:
    """The cluster; its CRDs, its operator and its agents have versions of their own."""

    crds: Version
    operator: Version
    agents: Version

    def __init__(self, client: KubeClient, kubeconfig: Path, folder: Path, tasks: asyncio.TaskGroup) -> None:
        self.client = client
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._tasks = tasks
        self._process: asyncio.subprocess.Process | None = None
        self._nodes = {
            name: SimulatedNode(
                name,
                LAB,
                kubeconfig,
                folder / name,
                agent="process",
                agent_log=folder / f"{name}-agent.log",
                serves_memory=False,
            )
            for name in NODES
        }
        self._running: list[asyncio.Task[None]] = []

    # ---- the versions

    async def install(self, crds: Version) -> None:
        """Replaces the CRDs, and returns when the API server uses them."""
        for wanted in crds.crds():
            stored = await self.client.get(CRDS, wanted["metadata"]["name"])
            await self.client.replace(CRDS, {**stored, "spec": wanted["spec"]})
        self.crds = crds
        known = _properties(crds, "cpudriverconfigs")

        async def in_force() -> None:
            answer = await self.client.patch(CONFIGS, _PROBE, {"spec": {"parkIdle": True, "rollout": _LATER}})
            assert ("parkIdle" in answer["spec"]) == ("parkIdle" in known)
            assert ("removalSeconds" in answer["spec"]["rollout"]) == (
                "removalSeconds" in known["rollout"]["properties"]
            )

        await self.eventually(in_force)
        unset = {"parkIdle": None, "rollout": dict.fromkeys(_LATER)}
        await self.client.patch(CONFIGS, _PROBE, {"spec": unset})

    async def operate(self, version: Version) -> None:
        """Ends the operator, starts one of this version, and returns when it has reconciled."""
        await self.stop_operator()
        with (self._folder / "operator.log").open("ab") as log:
            log.write(f"---- {version.name}\n".encode())
            log.flush()
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dracpu_operator", "run", "--log-format=text", "--log-level=debug"),
                *("--kubeconfig", str(self._kubeconfig), "--http-address=127.0.0.1:0"),
                stdout=log,
                stderr=log,
                env=version.environment,
                cwd=self._folder,
            )
        self.operator = version
        await self.reconciled()

    async def stop_operator(self) -> None:
        """Ends the operator."""
        if self._process is not None:
            self._process.terminate()
            await self._process.wait()
            assert self._process.returncode == 0, self.operator_log()
            self._process = None

    async def run_agents(self, version: Version) -> None:
        """Replaces the agents one by one; returns when they have reported."""
        self.agents = version
        for node in self._nodes.values():
            # the agent's process inherits the variable
            with pytest.MonkeyPatch.context() as environment:
                environment.setenv("PYTHONPATH", version.python_path)
                if node.up.is_set():
                    await node.stop_agent()
                    await node.start_agent()
                else:
                    self._running.append(self._tasks.create_task(node.run(), name=node.name))
                    await node.up.wait()
        await self.eventually(self._agents_reported)

    async def stop(self) -> None:
        """Ends all parts."""
        await self.stop_operator()
        for running in self._running:
            running.cancel()

    # ---- objects

    async def config(self) -> JsonObject:
        """Returns the config that all nodes follow."""
        return await self.client.get(CONFIGS, CONFIG)

    async def edit(self, spec: Mapping[str, Any]) -> None:
        """Changes these fields of the config's spec, as a user does; None removes a field."""
        await self.client.patch(CONFIGS, CONFIG, {"spec": dict(spec)})

    async def cpu_node(self, name: str = NODES[0]) -> JsonObject:
        """Returns a CpuNode."""
        return await self.client.get(CPU_NODES, name)

    async def cpu_nodes(self) -> dict[str, JsonObject]:
        """Returns all CpuNodes by name."""
        return {item["metadata"]["name"]: item for item in await self.client.list(CPU_NODES)}

    async def slices(self) -> dict[str, JsonObject]:
        """Returns the uid and the spec of each ResourceSlice, by name."""
        return {
            item["metadata"]["name"]: {"uid": item["metadata"]["uid"], **item["spec"]}
            for item in await self.client.list(SLICES)
        }

    async def condition(self, kind: str) -> JsonObject:
        """Returns a condition of the config; an empty one while the config does not have it."""
        return conditions_of(await self.config()).get(kind, {})

    # ---- pods

    async def run_pod(self, name: str, cpus: int, node: str) -> str:
        """Runs a pod with a claim on a node; returns the pod's CPUs."""
        await self.client.create(CLAIMS, manifests.claim(name, {"cpus": manifests.cpus(cpus)}))
        await self.client.create(PODS, manifests.pod(name, {manifests.CONTAINER: [name]}, node=node))

        async def running() -> str:
            try:
                return self.cpus_of(name, node)
            except NoContainerError as error:
                raise AssertionError(f"pod {name} does not run") from error

        return await self.eventually(running)

    def cpus_of(self, pod: str, node: str) -> str:
        """Returns the CPUs on which a pod's container may run."""
        return self._nodes[node].cpuset_of(manifests.NAMESPACE, pod, manifests.CONTAINER)

    # ---- waiting

    async def eventually(self, check: Callable[[], Awaitable[_T]]) -> _T:
        """Repeats a check until no assertion in it fails and the API server serves."""
        deadline = asyncio.get_running_loop().time() + _SECONDS
        while True:
            try:
                return await check()
            except (AssertionError, KubeError) as error:
                initializing = isinstance(error, KubeError) and error.code == _INITIALIZING
                if asyncio.get_running_loop().time() > deadline or not (
                    initializing or isinstance(error, AssertionError)
                ):
                    error.add_note(self.operator_log())
                    raise
            await asyncio.sleep(_LOOK_SECONDS)

    async def reconciled(self) -> None:
        """Waits until the operator has made a plan of all objects as they are now: it reports a change of a config that
        selects no node."""
        probe = await self.client.get(CONFIGS, _PROBE)
        priority = 1 + probe["spec"]["priority"]
        changed = await self.client.patch(CONFIGS, _PROBE, {"spec": {"priority": priority}})
        generation = changed["metadata"]["generation"]

        async def reported() -> None:
            assert self._process is not None
            if self._process.returncode is not None:
                raise OperatorEndedError(self.operator_log())
            status = (await self.client.get(CONFIGS, _PROBE)).get("status") or {}
            assert status.get("observedGeneration") == generation

        await self.eventually(reported)

    async def applied(self) -> None:
        """Waits until every node has applied the config's settings as they are now."""

        async def all_applied() -> None:
            config = await self.config()
            status = config.get("status") or {}
            assert status.get("observedGeneration") == config["metadata"]["generation"], status
            assert status["nodes"]["applied"] == len(NODES), status
            await self._agents_reported()

        await self.eventually(all_applied)

    async def _agents_reported(self) -> None:
        for item in (await self.cpu_nodes()).values():
            status = item.get("status") or {}
            assert status.get("agentVersion") == self.agents.number, status

    def operator_log(self) -> str:
        """Returns the end of the operator's log, for a person who looks into a failure."""
        return "\n".join((self._folder / "operator.log").read_text().splitlines()[-40:])


def given(cpu_nodes: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Returns what an upgrade must not change in CpuNodes."""
    return {
        name: {
            **{field: item["metadata"].get(field) for field in ("uid", "generation", "deletionTimestamp")},
            "remove after": item["metadata"].get("annotations", {}).get(ANNOTATION_REMOVE_AFTER),
            "spec": item["spec"],
        }
        for name, item in cpu_nodes.items()
    }


def _properties(version: Version, plural: str) -> dict[str, JsonObject]:
    """Returns the schemas of the fields of a CRD's spec."""
    (crd,) = (crd for crd in version.crds() if crd["spec"]["names"]["plural"] == plural)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, JsonObject] = schema["properties"]["spec"]["properties"]
    return found


@contextlib.asynccontextmanager
async def skewed_cluster(
    programs: Iterable[Path], folder: Path, version: Version = PRESENT
) -> AsyncIterator[SkewedCluster]:
    """Starts the cluster with everything in one version, and a config that all nodes have applied."""
    assets = folder / "programs"
    assets.mkdir()
    for program in programs:
        (assets / program.name).symlink_to(program)
    async with real(assets, folder / "plane", 0) as plane:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(plane.kubeconfig))
        async with KubeClient.from_kubeconfig(kubeconfig) as client, asyncio.TaskGroup() as tasks:
            parts = [tasks.create_task(part, name=name) for name, part in plane.parts(client).items()]
            await install(client, None)
            for name, spec in ((CONFIG, _QUICK), (_PROBE, {"nodeSelector": {"matchLabels": {"no": "node"}}})):
                await client.create(CONFIGS, {**_CONFIG, "metadata": {"name": name}, "spec": spec})
            cluster = SkewedCluster(client, kubeconfig, folder, tasks)
            try:
                await cluster.install(version)
                await cluster.operate(version)
                await cluster.run_agents(version)
                await cluster.applied()
                yield cluster
            finally:
                await cluster.stop()
                for part in parts:
                    part.cancel()


_CONFIG: Final = {"apiVersion": CONFIGS.api_version, "kind": CONFIGS.kind}

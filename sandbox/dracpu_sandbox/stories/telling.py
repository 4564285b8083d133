"""The words of a story: what can be done in a cluster, and what can be expected of it.

Each word tells what it does while it happens. What does not come as expected ends the story: it says what was
expected, and what was seen instead.
"""

import asyncio
import contextlib
import textwrap
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from dracpu_api.cpuset import CpuSet, union
from dracpu_sandbox.client import KubeClient, Mirror
from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.node.kubelet import NoContainerError
from dracpu_sandbox.node.node import SimulatedNode
from dracpu_sandbox.resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    CONFIGS,
    CPU_NODES,
    PODS,
    SLICES,
    JsonObject,
)
from dracpu_sandbox.stories import manifests
from dracpu_sandbox.stories.manifests import NAMESPACE
from dracpu_sandbox.stories.seeing import pod_seen
from dracpu_sandbox.waiting import mirrored

CONFIG: Final = "default"

_PATIENCE: Final = 30.0  # seconds for anything to happen
_LONGEST_QUOTE: Final = 160  # characters
_NAMED: Final = 8  # pods, each in a line of its own; more of them are counted
_LOOK_SECONDS: Final = 0.05  # what no API object tells, such as a container's CPUs, is looked at so often


class UnexpectedError(SandboxError):
    """The story does not end as told."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected: {expected}\nseen:     {seen}")


@contextlib.asynccontextmanager
async def story_in(
    sandbox: Sandbox, tell: Callable[[str], object] = lambda line: None, patience: float = _PATIENCE
) -> AsyncGenerator["Story"]:
    """A story in a cluster that is up."""
    async with (
        mirrored(sandbox.client, PODS, namespace=NAMESPACE) as pods,
        mirrored(sandbox.client, CPU_NODES) as nodes,
    ):
        yield Story(sandbox, tell, pods=pods, nodes=nodes, patience=patience)


class Story:
    """A cluster in which something happens."""

    def __init__(
        self, sandbox: Sandbox, tell: Callable[[str], object], *, pods: Mirror, nodes: Mirror, patience: float
    ) -> None:
        self.tell = tell
        self.nodes = tuple(sandbox.nodes)
        self._sandbox = sandbox
        self._pods = pods
        self._cpu_nodes = nodes
        self._patience = patience
        self._claiming: set[str] = set()  # pods that have claims

    @property
    def client(self) -> KubeClient:
        """For what there is no word for."""
        return self._sandbox.client

    # pods

    async def pod(
        self,
        name: str,
        cpus: int = 0,
        *,
        devices: int = 0,
        node: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Makes a pod that asks for CPUs of one device, or for devices; without either it has no claim."""
        self.tell(f"pod {name} {_asks(cpus, devices)}{f', on {node}' if node else ''}")
        await self._make_pod(name, _request(cpus, devices), node, environment)

    async def pods(self, number: int, cpus: int) -> list[str]:
        """Makes many pods that ask for the same; returns their names."""
        self.tell(f"{number} pods ask for {cpus} CPUs each")
        names = [f"pod-{count + 1}" for count in range(number)]
        for name in names:
            await self._make_pod(name, _request(cpus))
        return names

    async def until_running(self, *names: str) -> None:
        """Waits until the pods run, and tells where."""
        for name in names:
            await self._until(f"pod {name} runs", partial(self._runs, name), partial(self._seen, name))
            if len(names) <= _NAMED:
                self.tell(f"{name} runs on {self.node_of(name)}, on CPUs {self.cpus(name)}")
        if len(names) > _NAMED:
            self.tell(f"{len(names)} pods run, on {len({self.node_of(name) for name in names})} nodes")

    async def until_waiting(self, name: str, because: str) -> None:
        """Waits until the pod is kept waiting, for a reason that has these words in it."""
        expected = f"pod {name} waits, because: {because}"
        await self._until(expected, partial(self._waits, name, because), partial(self._seen, name))
        self.tell(f"{name} waits: {textwrap.shorten(await self._seen(name), _LONGEST_QUOTE)}")

    async def delete(self, name: str) -> None:
        """Deletes a pod, and waits until it and its claim are gone."""
        self.tell(f"pod {name} is deleted")
        await self.client.delete(PODS, name, NAMESPACE)
        await self._until(
            f"pod {name} is gone", lambda: self._pods.get(name, NAMESPACE) is None, partial(self._seen, name)
        )
        if name in self._claiming:
            self._claiming.discard(name)
            await self.client.delete(CLAIM_TEMPLATES, name, NAMESPACE)
            await self._until(f"the claim of {name} is gone", partial(self._has_no_claim, name))

    def node_of(self, name: str) -> str:
        """The node on which a pod runs."""
        pod = self._pods.get(name, NAMESPACE) or {}
        return str((pod.get("spec") or {}).get("nodeName") or "")

    def cpus(self, name: str, container: str = "") -> CpuSet:
        """The CPUs on which a pod's containers, or one of them, may run at this moment, as their runtime has it."""
        spec = (self._pods.get(name, NAMESPACE) or {}).get("spec") or {}
        containers = [container] if container else [one["name"] for one in spec.get("containers") or ()]
        node = self.node(self.node_of(name))
        return union(CpuSet.parse(node.cpuset_of(NAMESPACE, name, one)) for one in containers)

    async def claim_of(self, name: str) -> JsonObject:
        """A pod's claim."""
        statuses = ((self._pods.get(name, NAMESPACE) or {}).get("status") or {}).get("resourceClaimStatuses")
        if not statuses:
            raise UnexpectedError(f"pod {name} has a claim", await self._seen(name))
        return await self.client.get(CLAIMS, statuses[0]["resourceClaimName"], NAMESPACE)

    # nodes

    def node(self, name: str) -> SimulatedNode:
        """A node, to be shaken."""
        return self._sandbox.nodes[name]

    async def crash_agent(self, node: str) -> None:
        """Kills a node's agent as SIGKILL does."""
        self.tell(f"the agent of {node} is killed")
        await self.node(node).crash_agent()

    async def start_agent(self, node: str) -> None:
        """Starts a node's agent again."""
        self.tell(f"the agent of {node} starts again")
        await self.node(node).start_agent()

    async def reboot(self, node: str) -> None:
        """Takes a node's power away, and gives it back."""
        self.tell(f"{node} reboots")
        await self.node(node).reboot()

    # settings and devices

    async def configure(self, **spec: Any) -> None:
        """Edits the CpuDriverConfig, and waits until all nodes have applied it."""
        words = ", ".join(f"{key}: {value}" for key, value in spec.items())
        self.tell(f"the config is edited: {words}")
        edited = await self.client.patch(CONFIGS, CONFIG, {"spec": spec})
        generation = edited["metadata"]["generation"]
        await self._until("every node applies the edited config", partial(self._applied, generation), self._config_seen)
        self.tell("all nodes have applied it")

    async def devices(self, node: str) -> list[str]:
        """The names of the devices that a node offers."""
        slices = await self.client.list(SLICES, fields=f"spec.nodeName={node}")
        return sorted(device["name"] for one in slices for device in one["spec"].get("devices") or ())

    async def until_devices(self, node: str, expected: str, condition: Callable[[list[str]], bool]) -> None:
        """Waits until a node's devices are as expected."""

        async def fits() -> bool:
            return condition(await self.devices(node))

        async def seen() -> str:
            return ", ".join(await self.devices(node)) or "no device"

        await self._until(expected, fits, seen)
        self.tell(f"{node} offers {await seen()}")

    async def until_ready(self) -> None:
        """Waits until every node offers its CPUs and has nothing left of former devices."""
        await self._until("every node is Ready", lambda: not self._unready(), lambda: ", ".join(self._unready()))

    # expectations

    def expects(self, what: str, true: object, seen: object = "") -> None:
        """Ends the story here when it is not true."""
        if not true:
            raise UnexpectedError(what, str(seen) or "it is not so")
        self.tell(f"as expected, {what}")

    async def until_exclusive(self) -> None:
        """Waits until no CPU of a claim is another's: neither another claim's, nor that of a container without one."""
        await self._until("CPUs of claims are nobody else's", lambda: not self._overlaps(), self._overlaps)
        self.tell("as expected, CPUs of claims are nobody else's")

    async def until(
        self, what: str, condition: Callable[[], bool | Awaitable[bool]], seen: Callable[[], object] | None = None
    ) -> None:
        """Waits until something is true."""
        await self._until(what, condition, seen)
        self.tell(f"as expected, {what}")

    # what the words are made of

    async def _make_pod(
        self, name: str, request: JsonObject | None, node: str = "", environment: Mapping[str, str] | None = None
    ) -> None:
        if request is not None:
            self._claiming.add(name)
            await self.client.create(CLAIM_TEMPLATES, manifests.claim_template(name, request))
        template = name if request is not None else ""
        await self.client.create(PODS, manifests.pod(name, template=template, node=node, environment=environment))

    async def _until(
        self, what: str, condition: Callable[[], bool | Awaitable[bool]], seen: Callable[[], object] | None = None
    ) -> None:
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    if await _value(condition()):
                        return
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError as error:
            last = await _value(seen()) if seen is not None else ""
            raise UnexpectedError(what, f"{last or 'it is not so'}, after {self._patience:.0f} s") from error

    def _runs(self, name: str) -> bool:
        pod = self._pods.get(name, NAMESPACE)
        conditions = (pod or {}).get("status", {}).get("conditions") or ()
        if not any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
            return False
        try:
            self.cpus(name)
        except NoContainerError:  # its status is from before a reboot
            return False
        return True

    async def _waits(self, name: str, because: str) -> bool:
        return not self._runs(name) and because in await self._seen(name)

    async def _seen(self, name: str) -> str:
        return await pod_seen(self.client, self._pods.get(name, NAMESPACE), name)

    async def _has_no_claim(self, name: str) -> bool:
        listed = await self.client.list(CLAIMS, NAMESPACE)
        owners = [owner["name"] for one in listed for owner in one["metadata"].get("ownerReferences") or ()]
        return name not in owners

    async def _applied(self, generation: int) -> bool:
        config = await self.client.get(CONFIGS, CONFIG)
        status = config.get("status") or {}
        conditions = {one["type"]: one for one in status.get("conditions") or ()}
        done = "Progressing" in conditions and conditions["Progressing"]["status"] == "False"
        return done and bool(status.get("observedGeneration", 0) >= generation)

    async def _config_seen(self) -> str:
        config = await self.client.get(CONFIGS, CONFIG)
        conditions = (config.get("status") or {}).get("conditions") or ()
        return "; ".join(f"{one['type']} {one['status']}: {one['message']}" for one in conditions)

    def _unready(self) -> list[str]:
        phases = {name: self._phase(name) for name in self.nodes}
        return [f"{name}: {phase}" for name, phase in phases.items() if phase != "Ready"]

    def _phase(self, name: str) -> str:
        return str(((self._cpu_nodes.get(name) or {}).get("status") or {}).get("phase") or "Pending")

    def _overlaps(self) -> list[str]:
        """Each pair that shares CPUs and must not."""
        running = [name for (_, name) in self._pods.items if self._runs(name)]
        found: list[str] = []
        for name in running:
            if name not in self._claiming:
                continue
            others = [one for one in running if one != name and self.node_of(one) == self.node_of(name)]
            shared = {one: self.cpus(name) & self.cpus(one) for one in others}
            found.extend(f"{name} and {one} share {cpus}" for one, cpus in shared.items() if cpus)
        return found


async def _value(outcome: Any) -> Any:
    """Conditions may ask the API server, or not."""
    return await outcome if isinstance(outcome, Awaitable) else outcome


def _request(cpus: int, devices: int = 0) -> JsonObject | None:
    if cpus:
        return manifests.cpus(cpus)
    return manifests.devices(devices) if devices else None


def _asks(cpus: int, devices: int) -> str:
    if cpus or devices:
        amount, what = (cpus, "CPU") if cpus else (devices, "device")
        return f"asks for {amount} {what}{'' if amount == 1 else 's'}"
    return "asks for no CPUs of its own"

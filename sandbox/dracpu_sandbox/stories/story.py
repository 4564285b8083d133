"""The actions and checks of stories: each method changes the cluster, or checks it and waits for the result.

Each method reports its action. A failed check ends the story with an error that gives the expected and the observed
state.
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
from dracpu_sandbox.node.pods import HOLD_ANNOTATION
from dracpu_sandbox.resources import CLAIM_TEMPLATES, CLAIMS, CONFIGS, CPU_NODES, NODES, PODS, JsonObject, conditions_of
from dracpu_sandbox.stories import manifests
from dracpu_sandbox.stories.manifests import CONTAINER, NAMESPACE, Containers
from dracpu_sandbox.stories.seeing import devices_of, pod_seen
from dracpu_sandbox.waiting import mirrored

CONFIG: Final = "default"

_PATIENCE: Final = 30.0  # seconds for anything to happen
_LONGEST_QUOTE: Final = 160  # characters
_NAMED: Final = 8  # most pods that get a line each; of more pods only the number is reported
_LOOK_SECONDS: Final = 0.05  # interval of checks, as no watch reports, for example, a container's CPUs

Condition = Callable[[], bool | Awaitable[bool]]


class UnexpectedError(SandboxError):
    """A check of the story has failed."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected: {expected}\nseen:     {seen}")


@contextlib.asynccontextmanager
async def story_in(
    sandbox: Sandbox, report: Callable[[str], object] = lambda line: None, patience: float = _PATIENCE
) -> AsyncGenerator["Story"]:
    """Makes the story object for a running cluster."""
    async with (
        mirrored(sandbox.client, PODS, namespace=NAMESPACE) as pods,
        mirrored(sandbox.client, CPU_NODES) as nodes,
    ):
        yield Story(sandbox, report, pods=pods, nodes=nodes, patience=patience)


class Story:
    """A cluster with the actions and checks of a story."""

    def __init__(
        self, sandbox: Sandbox, report: Callable[[str], object], *, pods: Mirror, nodes: Mirror, patience: float
    ) -> None:
        self.report = report
        self.nodes = tuple(sandbox.nodes)
        self._sandbox = sandbox
        self._pods = pods
        self._cpu_nodes = nodes
        self._patience = patience
        self._templates: set[str] = set()  # pods with their own claim

    @property
    def client(self) -> KubeClient:
        """A client, for everything that has no method here."""
        return self._sandbox.client

    # pods and claims

    async def pod(
        self,
        name: str,
        cpus: int = 0,
        *,
        devices: int = 0,
        numa_node: int | None = None,
        node: str = "",
        environment: Mapping[str, str] | None = None,
        held: bool = False,
    ) -> None:
        """Creates a pod that requests CPUs of one device, or devices; without either it has no claim.

        The kubelet does not start a held pod until `release` is called, as if it waited for a volume.
        """
        self.report(f"pod {name} {_asks(cpus, devices, numa_node)}{f', on {node}' if node else ''}")
        template = await self._template(name, _request(cpus, devices, numa_node))
        made = manifests.pod(name, {CONTAINER: []}, template=template, node=node, environment=environment, held=held)
        await self.client.create(PODS, made)

    async def pods(self, number: int, cpus: int) -> list[str]:
        """Creates many pods with equal requests; returns their names."""
        self.report(f"{number} pods request {cpus} CPUs each")
        names = [f"pod-{count + 1}" for count in range(number)]
        for name in names:
            template = await self._template(name, manifests.cpus(cpus))
            await self.client.create(PODS, manifests.pod(name, {CONTAINER: []}, template=template))
        return names

    async def claim(self, name: str, **requests: int) -> None:
        """Creates a claim that pods can share; each request asks for a number of CPUs."""
        asked = ", ".join(f"{cpus} CPUs as {request}" for request, cpus in requests.items())
        self.report(f"claim {name} requests {asked}")
        made = manifests.claim(name, {request: manifests.cpus(cpus) for request, cpus in requests.items()})
        await self.client.create(CLAIMS, made)

    async def pod_of(self, name: str, containers: Containers, init: Containers | None = None) -> None:
        """Creates a pod with the claims that each container uses: "claim", or "claim/request" for a part of it."""
        uses = [f"{container} uses {' and '.join(used) or 'no claim'}" for container, used in containers.items()]
        self.report(f"pod {name}: {', '.join(uses)}")
        await self.client.create(PODS, manifests.pod(name, containers, init=init))

    async def release(self, name: str) -> None:
        """Lets the kubelet start a held pod."""
        self.report(f"pod {name} is no longer held")
        await self.client.patch(PODS, name, {"metadata": {"annotations": {HOLD_ANNOTATION: None}}}, NAMESPACE)

    async def until_running(self, *names: str) -> None:
        """Waits until the pods run, and reports on which CPUs."""
        for name in names:
            await self._until(f"pod {name} runs", partial(self._runs, name), partial(self._seen, name))
            if len(names) <= _NAMED:
                self.report(f"{name} runs on {self.node_of(name)}, on CPUs {self.cpus(name)}")
        if len(names) > _NAMED:
            self.report(f"{len(names)} pods run, on {len({self.node_of(name) for name in names})} nodes")

    async def until_waiting(self, name: str, because: str) -> None:
        """Waits until the pod waits for a reason that contains this text."""

        async def waits() -> bool:
            return not self._runs(name) and because in await self._seen(name)

        await self._until(f"pod {name} waits, because: {because}", waits, partial(self._seen, name))
        self.report(f"{name} waits: {textwrap.shorten(await self._seen(name), _LONGEST_QUOTE)}")

    async def until_allocated(self, name: str) -> None:
        """Waits until the scheduler has allocated devices to a pod's claim."""

        async def allocated() -> bool:
            made = ((self._pods.get(name, NAMESPACE) or {}).get("status") or {}).get("resourceClaimStatuses")
            return bool(made) and "allocation" in ((await self.claim_of(name)).get("status") or {})

        await self.until(f"the claim of {name} has its devices", allocated, partial(self._seen, name))

    async def delete(self, name: str) -> None:
        """Deletes a pod, and waits until it and its own claim are gone."""
        self.report(f"pod {name} is deleted")
        await self.client.delete(PODS, name, NAMESPACE)
        await self._until(
            f"pod {name} is gone", lambda: self._pods.get(name, NAMESPACE) is None, partial(self._seen, name)
        )
        if name in self._templates:
            self._templates.discard(name)
            await self.client.delete(CLAIM_TEMPLATES, name, NAMESPACE)
            await self._until(f"the claim of {name} is gone", partial(self._has_no_claim, name))

    def node_of(self, name: str) -> str:
        """Returns the node on which a pod runs."""
        pod = self._pods.get(name, NAMESPACE) or {}
        return str((pod.get("spec") or {}).get("nodeName") or "")

    def cpus(self, name: str, container: str = "") -> CpuSet:
        """Returns the CPUs on which a pod's containers, or one of them, may run now, as the runtime has set them."""
        spec = (self._pods.get(name, NAMESPACE) or {}).get("spec") or {}
        containers = [container] if container else [item["name"] for item in spec.get("containers") or ()]
        node = self.node(self.node_of(name))
        return union(CpuSet.parse(node.cpuset_of(NAMESPACE, name, item)) for item in containers)

    def cpus_at_start(self, name: str, container: str) -> CpuSet:
        """Returns the CPUs that a container had at its start, from its log."""
        log = self.node(self.node_of(name)).logs(NAMESPACE, name, container)
        return CpuSet.parse(log.splitlines()[0].partition(":")[2])

    async def claim_of(self, name: str) -> JsonObject:
        """Returns the claim that was made for a pod."""
        statuses = ((self._pods.get(name, NAMESPACE) or {}).get("status") or {}).get("resourceClaimStatuses")
        if not statuses:
            raise UnexpectedError(f"pod {name} has a claim", await self._seen(name))
        return await self.client.get(CLAIMS, statuses[0]["resourceClaimName"], NAMESPACE)

    # nodes

    def node(self, name: str) -> SimulatedNode:
        """Returns a simulated node, to disturb it."""
        return self._sandbox.nodes[name]

    async def crash_agent(self, node: str) -> None:
        """Kills a node's agent with SIGKILL."""
        self.report(f"the agent of {node} is killed")
        await self.node(node).crash_agent()

    async def start_agent(self, node: str) -> None:
        """Starts a node's agent again."""
        self.report(f"the agent of {node} starts again")
        await self.node(node).start_agent()

    async def reboot(self, node: str) -> None:
        """Reboots a node without shutting it down."""
        self.report(f"{node} reboots")
        await self.node(node).reboot()

    async def crash_container(self, name: str, container: str) -> None:
        """Kills a pod's container, and waits until the kubelet has started it again."""
        self.report(f"container {container} of {name} is killed")
        before = self._restarts(name, container)
        await self.node(self.node_of(name)).kill_container(NAMESPACE, name, container)
        await self.until(
            f"{_place(name, container)} runs again",
            lambda: self._restarts(name, container) > before and self._runs(name),
            partial(self._seen, name),
        )

    async def label(self, node: str, **labels: str) -> None:
        """Sets labels of a node."""
        self.report(f"{node} is labelled {', '.join(f'{key}={value}' for key, value in labels.items())}")
        await self.client.patch(NODES, node, {"metadata": {"labels": labels}})

    # settings and devices

    async def add_config(self, name: str, selected: Mapping[str, str], **spec: Any) -> None:
        """Creates a CpuDriverConfig for the nodes with these labels, with a higher priority than the default one."""
        self.report(f"config {name} selects nodes with {_words(selected)}, and sets {_words(spec)}")
        await self.client.create(CONFIGS, manifests.config(name, selected, spec))

    async def edit(self, **spec: Any) -> int:
        """Edits the default CpuDriverConfig without waiting; returns its generation."""
        self.report(f"the config is edited: {_words(spec)}")
        edited = await self.client.patch(CONFIGS, CONFIG, {"spec": spec})
        return int(edited["metadata"]["generation"])

    async def configure(self, **spec: Any) -> None:
        """Edits the default CpuDriverConfig, and waits until all its nodes have applied it."""
        applied = partial(self._applied, await self.edit(**spec))
        await self.until("all nodes have applied the config", applied, self._config_seen)

    async def until_config_reports(self, words: str) -> None:
        """Waits until the conditions of the default CpuDriverConfig contain this text."""

        async def reported() -> bool:
            return words in await self._config_seen()

        await self.until(f"the config reports: {words}", reported, self._config_seen)

    async def devices(self, node: str) -> dict[str, int]:
        """Returns the devices that a node offers to new claims, each with its number of CPUs."""
        return await devices_of(self.client, node)

    async def until_devices(self, node: str, expected: Mapping[str, int]) -> None:
        """Waits until a node offers exactly these devices with these numbers of CPUs."""

        async def offered() -> bool:
            return await self.devices(node) == expected

        async def seen() -> str:
            return _offer(await self.devices(node))

        await self.until(f"{node} offers {_offer(expected)}", offered, seen)

    async def until_phase(self, phase: str, *nodes: str) -> None:
        """Waits until these nodes, by default all nodes, have this phase."""

        def others() -> list[str]:
            phases = {name: self._phase(name) for name in nodes or self.nodes}
            return [f"{name}: {found}" for name, found in phases.items() if found != phase]

        await self.until(
            f"{', '.join(nodes) or 'every node'} is {phase}", lambda: not others(), lambda: ", ".join(others())
        )

    # expectations

    def expects(self, what: str, true: object, seen: object = "") -> None:
        """Fails the story unless the check is true."""
        if not true:
            raise UnexpectedError(what, str(seen) or "the check is false")
        self.report(f"checked: {what}")

    def expects_cpus(self, name: str, cpus: CpuSet, container: str = "") -> None:
        """Fails the story unless a pod, or one of its containers, runs on these CPUs."""
        found = self.cpus(name, container)
        self.expects(f"{_place(name, container)} runs on CPUs {cpus}", found == cpus, found)

    async def until_cpus(self, name: str, cpus: CpuSet, container: str = "") -> None:
        """Waits until a pod, or one of its containers, runs on these CPUs."""
        expected = f"{_place(name, container)} runs on CPUs {cpus}"
        await self.until(expected, lambda: self.cpus(name, container) == cpus, lambda: self.cpus(name, container))

    async def until_exclusive(self) -> None:
        """Waits until no pod runs on CPUs of another pod's claim."""
        await self.until("no pod runs on CPUs of another pod's claim", lambda: not self._overlaps(), self._overlaps)

    async def until(self, what: str, condition: Condition, seen: Callable[[], object] | None = None) -> None:
        """Waits until a condition is true."""
        await self._until(what, condition, seen)
        self.report(f"checked: {what}")

    # internals

    async def _template(self, name: str, request: JsonObject | None) -> str:
        """Creates a template for a pod's own claim; returns "" if the pod has none."""
        if request is None:
            return ""
        self._templates.add(name)
        await self.client.create(CLAIM_TEMPLATES, manifests.claim_template(name, request))
        return name

    async def _until(self, what: str, condition: Condition, seen: Callable[[], object] | None = None) -> None:
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    if await _value(condition()):
                        return
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError as error:
            last = await _value(seen()) if seen is not None else ""
            raise UnexpectedError(what, f"{last or 'the condition is false'}, after {self._patience:.0f} s") from error

    def _runs(self, name: str) -> bool:
        conditions = conditions_of(self._pods.get(name, NAMESPACE))
        if conditions.get("Ready", {}).get("status") != "True":
            return False
        try:
            self.cpus(name)
        except NoContainerError:  # the status is from before a reboot
            return False
        return True

    def _restarts(self, name: str, container: str) -> int:
        statuses = ((self._pods.get(name, NAMESPACE) or {}).get("status") or {}).get("containerStatuses") or ()
        return sum(int(status["restartCount"]) for status in statuses if status["name"] == container)

    async def _seen(self, name: str) -> str:
        return await pod_seen(self.client, self._pods.get(name, NAMESPACE), name)

    async def _has_no_claim(self, name: str) -> bool:
        listed = await self.client.list(CLAIMS, NAMESPACE)
        return name not in [owner["name"] for item in listed for owner in item["metadata"].get("ownerReferences") or ()]

    async def _applied(self, generation: int) -> bool:
        config = await self.client.get(CONFIGS, CONFIG)
        done = conditions_of(config).get("Progressing", {}).get("status") == "False"
        return done and bool((config.get("status") or {}).get("observedGeneration", 0) >= generation)

    async def _config_seen(self) -> str:
        conditions = conditions_of(await self.client.get(CONFIGS, CONFIG)).values()
        return "; ".join(f"{item['type']} {item['status']} {item['reason']}: {item['message']}" for item in conditions)

    def _phase(self, name: str) -> str:
        return str(((self._cpu_nodes.get(name) or {}).get("status") or {}).get("phase") or "Pending")

    def _overlaps(self) -> list[str]:
        """Returns each pair of pods that shares CPUs, but must not."""
        running = [name for (_, name) in self._pods.items if self._runs(name)]
        pairs = [
            (name, other)
            for name in running
            for other in running
            if name in self._templates and name != other and self.node_of(name) == self.node_of(other)
        ]
        shared = {pair: self.cpus(pair[0]) & self.cpus(pair[1]) for pair in pairs}
        return [f"{name} and {other} share {cpus}" for (name, other), cpus in shared.items() if cpus]


async def _value(outcome: Any) -> Any:
    """Awaits the outcome of a condition if it is a coroutine."""
    return await outcome if isinstance(outcome, Awaitable) else outcome


def _request(cpus: int, devices: int, numa_node: int | None) -> JsonObject | None:
    if not cpus and not devices:
        return None
    request = manifests.cpus(cpus) if cpus else manifests.devices(devices)
    return request if numa_node is None else {**request, **manifests.on_numa_node(numa_node)}


def _asks(cpus: int, devices: int, numa_node: int | None) -> str:
    if not cpus and not devices:
        return "has no claim"
    amount, what = (cpus, "CPU") if cpus else (devices, "device")
    where = "" if numa_node is None else f" of NUMA node {numa_node}"
    return f"requests {amount} {what}{'' if amount == 1 else 's'}{where}"


def _place(name: str, container: str) -> str:
    return f"container {container} of {name}" if container else name


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in values.items())


def _offer(devices: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({cpus})" if cpus > 1 else name for name, cpus in devices.items()) or "no device"

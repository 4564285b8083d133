"""The simulated kubelet: manages the drivers, claims and pods of one node.

It does not implement images, volumes, probes, grace periods, networks, heartbeats and evictions.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import structlog

from dracpu_sandbox.amounts import Amounts, amounts
from dracpu_sandbox.client import Event, KubeClient, NotFoundError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.events import EventRecorder
from dracpu_sandbox.following import Following
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.node.admission import refusal
from dracpu_sandbox.node.claim_cache import ClaimCache
from dracpu_sandbox.node.delays import Delays
from dracpu_sandbox.node.node_object import address_of, allocatable_of, capacity_of
from dracpu_sandbox.node.plugin_manager import PluginManager
from dracpu_sandbox.node.pod_cgroups import PodCgroups
from dracpu_sandbox.node.pod_worker import PodWorker
from dracpu_sandbox.node.pods import Pod
from dracpu_sandbox.node.runtime import SimulatedRuntime
from dracpu_sandbox.resources import PODS, SLICES

log = structlog.get_logger("kubelet")


class NoContainerError(SandboxError):
    """The node does not have this pod, or the container has not started."""


class Kubelet:
    """The kubelet of one node. It can run again: it keeps what a real one reads from files and statuses."""

    def __init__(
        self,
        node_name: str,
        root: Path,
        client: KubeClient,
        runtime: SimulatedRuntime,
        delays: Delays,
        machine: Callable[[], Machine],
    ) -> None:
        self._node_name = node_name
        self._client = client
        self._runtime = runtime
        self._delays = delays
        self.plugins = PluginManager(root / "plugins_registry", delays, self._delete_slices, self._wake_all)
        self._machine = machine
        self._allocatable: Amounts = {}  # as is the next one, what the kubelet has found at its start
        self._memory = 0
        self._cgroups = PodCgroups(runtime.cgroups)
        self._claims = ClaimCache(self.plugins.find)
        self._events = EventRecorder(client, "kubelet", node_name)
        self._workers: dict[str, PodWorker] = {}  # by pod UID
        self._hosts = itertools.count(1)  # addresses of pods
        self._pods = Following(client, PODS, fields=f"spec.nodeName={node_name}", retry=delays.pod_retry)
        self._pods.listen(self._pod_changed)
        self._group: asyncio.TaskGroup | None = None
        runtime.on_change = self._wake

    async def run(self) -> None:
        """Runs until it is cancelled; containers continue without it."""
        machine = self._machine()
        self._allocatable = amounts(allocatable_of(machine))
        self._memory = int(amounts(capacity_of(machine))["memory"])
        self._cgroups.start()
        self._claims.forget_preparations()
        await self._delete_slices()  # kubelet: deletes all slices of its node at its start
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self.plugins.run(), name=f"{self._node_name} plugins")
            self._group.create_task(self._events.run(), name=f"{self._node_name} events")
            for worker in self._workers.values():
                self._run_worker(worker)
            self._group.create_task(self._pods.run(), name=f"{self._node_name} pods")

    def container_of(self, namespace: str, pod: str, container: str) -> str:
        """Returns the id of a pod's container; raises NoContainerError."""
        for worker in self._workers.values():
            if (worker.pod.namespace, worker.pod.name) == (namespace, pod) and worker.container_id(container):
                return worker.container_id(container)
        raise NoContainerError(f"container {container} of pod {namespace}/{pod} has not started on {self._node_name}")

    def _pod_changed(self, event: Event) -> None:
        if event.type == "SYNCED":
            for uid in self._workers.keys() - {pod["metadata"]["uid"] for pod in self._pods.all()}:
                self._workers[uid].vanish()
            return
        pod = Pod(event.object)
        if pod.is_mirror:
            return
        for known in self._workers.values():  # a missed deletion: a pod of the same name has replaced it
            other = known.pod
            if (other.namespace, other.name) == (pod.namespace, pod.name) and other.uid != pod.uid:
                known.vanish()
        worker = self._workers.get(pod.uid)
        if event.type == "DELETED":
            if worker is not None:
                worker.vanish()
        elif worker is not None:
            worker.update(pod)
        else:
            others = [known.pod.object for known in self._workers.values() if known.uses_resources]
            self._workers[pod.uid] = self._worker(pod, refusal(pod.object, others, self._allocatable))
            self._run_worker(self._workers[pod.uid])

    def _worker(self, pod: Pod, refused: tuple[str, str] | None) -> PodWorker:
        return PodWorker(
            pod,
            self._client,
            self._runtime,
            self._cgroups,
            self._claims,
            self._events,
            self._health_of,
            self._delays,
            node_ip=address_of(self._node_name, 0),
            pod_ip=str(pod.status.get("podIP") or address_of(self._node_name, next(self._hosts))),
            node_memory=self._memory,
            refusal=refused,
        )

    def _run_worker(self, worker: PodWorker) -> None:
        pod = worker.pod

        async def run() -> None:
            await worker.run()
            del self._workers[pod.uid]

        assert self._group is not None
        self._group.create_task(run(), name=f"{self._node_name} pod {pod.namespace}/{pod.name}")

    def _wake(self, pod_uid: str) -> None:
        if worker := self._workers.get(pod_uid):
            worker.wake()

    def _wake_all(self) -> None:
        for worker in self._workers.values():
            worker.wake()

    def _health_of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        state = self.plugins.device(driver, pool, device)
        return state.health, state.message

    async def _delete_slices(self, driver: str = "") -> None:
        """Deletes all slices of this node, or those of one driver; retries until it succeeds."""
        fields = f"spec.nodeName={self._node_name}" + (f",spec.driver={driver}" if driver else "")
        while True:
            try:
                for item in await self._client.list(SLICES, fields=fields):
                    with contextlib.suppress(NotFoundError):
                        await self._client.delete(SLICES, item["metadata"]["name"])
            except SandboxError as error:
                log.warning("cannot delete slices", node=self._node_name, error=str(error))
                await asyncio.sleep(self._delays.pod_retry)
            else:
                return

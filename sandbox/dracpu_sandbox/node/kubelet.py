"""The simulated kubelet: drivers, claims and pods of one node.

What it does not do: images, volumes, probes, grace periods, networks, heartbeats, evictions.
"""

import asyncio
import itertools
from pathlib import Path

import structlog

from dracpu_sandbox.client import Event, KubeClient, NotFoundError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.events import EventRecorder
from dracpu_sandbox.following import Following
from dracpu_sandbox.node.claim_cache import ClaimCache
from dracpu_sandbox.node.node_object import address_of
from dracpu_sandbox.node.pace import Pace
from dracpu_sandbox.node.plugin_manager import PluginManager
from dracpu_sandbox.node.plugins import KubeletError
from dracpu_sandbox.node.pod_worker import PodWorker
from dracpu_sandbox.node.pods import Pod
from dracpu_sandbox.node.runtime import SimulatedRuntime
from dracpu_sandbox.resources import PODS, SLICES

log = structlog.get_logger("kubelet")


class NoContainerError(SandboxError):
    """There is no such pod here, or its container has not started."""


class Kubelet:
    """One process. A restart is another one, on the same root and runtime, which knows the former one's claims."""

    def __init__(
        self,
        node_name: str,
        root: Path,
        client: KubeClient,
        runtime: SimulatedRuntime,
        pace: Pace,
        former: "Kubelet | None" = None,
    ) -> None:
        self._node_name = node_name
        self._client = client
        self._runtime = runtime
        self._pace = pace
        self.plugins = PluginManager(root / "plugins_registry", pace, self._delete_slices, self._wake_all)
        self.claims: ClaimCache = ClaimCache(self.plugins.find, former.claims if former is not None else None)
        self._events = EventRecorder(client, "kubelet", node_name)
        self._workers: dict[str, PodWorker] = {}  # by pod UID
        self._hosts = itertools.count(1)  # addresses of pods
        fields = f"spec.nodeName={node_name}"
        self._pods = Following(client, PODS, fields=fields, retry=pace.pod_retry)
        self._listed = asyncio.Event()  # all pods of this node were known once

    async def run(self) -> None:
        """Until cancelled; pods go on without it."""
        await self._delete_slices()  # kubelet: at its start, whoever made them and however fresh they are
        self._runtime.on_change = self._wake
        async with asyncio.TaskGroup() as group:
            group.create_task(self.plugins.run(), name=f"{self._node_name} plugins")
            group.create_task(self._events.run(), name=f"{self._node_name} events")
            self._pods.listen(lambda event: self._pod_changed(event, group))
            group.create_task(self._pods.run(), name=f"{self._node_name} pods")
            group.create_task(self._expire_claims(), name=f"{self._node_name} stale claims")

    def container_of(self, namespace: str, pod: str, container: str) -> str:
        """The id of a pod's container; raises NoContainerError."""
        for worker in self._workers.values():
            if (worker.pod.namespace, worker.pod.name) == (namespace, pod) and worker.container_id(container):
                return worker.container_id(container)
        raise NoContainerError(f"container {container} of pod {namespace}/{pod} has not started on {self._node_name}")

    def _pod_changed(self, event: Event, group: asyncio.TaskGroup) -> None:
        if event.type == "SYNCED":
            for uid in self._workers.keys() - {pod["metadata"]["uid"] for pod in self._pods.all()}:
                self._workers[uid].vanish()
            self._listed.set()
            return
        pod = Pod(event.object)
        if pod.is_mirror:
            return
        for known in self._workers.values():  # a pod of the same name may have taken its place unseen
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
            worker = self._workers[pod.uid] = self._worker(pod)
            group.create_task(self._carry(worker), name=f"{self._node_name} pod {pod.namespace}/{pod.name}")

    def _worker(self, pod: Pod) -> PodWorker:
        return PodWorker(
            pod,
            self._client,
            self._runtime,
            self.claims,
            self._events,
            self._health_of,
            self._pace,
            node_ip=address_of(self._node_name, 0),
            pod_ip=str(pod.status.get("podIP") or address_of(self._node_name, next(self._hosts))),
        )

    async def _carry(self, worker: PodWorker) -> None:
        uid = worker.pod.uid
        await worker.run()
        del self._workers[uid]

    def _wake(self, pod_uid: str) -> None:
        if worker := self._workers.get(pod_uid):
            worker.wake()

    def _wake_all(self) -> None:
        for worker in self._workers.values():
            worker.wake()

    def _health_of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        state = self.plugins.device(driver, pool, device)
        return state.health, state.message

    async def _expire_claims(self) -> None:
        """kubelet: claims of pods that have gone while it was not there are unprepared."""
        await self._listed.wait()
        while True:
            for uid in self.claims.stale_pods(set(self._workers)):
                try:
                    await self.claims.unprepare(uid)
                except KubeletError as error:
                    log.warning("stale claims not unprepared", pod_uid=uid, error=str(error))
            await asyncio.sleep(self._pace.stale_claims)

    async def _delete_slices(self, driver: str = "") -> None:
        """All slices of this node, or those of one driver; tried until it is done."""
        fields = f"spec.nodeName={self._node_name}" + (f",spec.driver={driver}" if driver else "")
        while True:
            try:
                for one in await self._client.list(SLICES, fields=fields):
                    await self._delete_slice(one["metadata"]["name"])
            except SandboxError as error:
                log.warning("slices not deleted", node=self._node_name, error=str(error))
                await asyncio.sleep(self._pace.pod_retry)
            else:
                return

    async def _delete_slice(self, name: str) -> None:
        try:
            await self._client.delete(SLICES, name)
        except NotFoundError:
            log.debug("slice is gone already", slice=name)

"""The scheduler at work: follows the cluster, decides one pod after the other, writes down what it has decided."""

import asyncio
import logging
from collections import Counter

from dracpu_sandbox.cel.quantity import QuantityError
from dracpu_sandbox.client import Event, KubeClient, NotFoundError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.events import EventRecorder, condition, has_condition
from dracpu_sandbox.following import Following, pause_after
from dracpu_sandbox.resources import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES, JsonObject, key_of
from dracpu_sandbox.scheduler.claims import (
    allocation_of,
    claim_names,
    has_finalizer,
    is_reserved_for,
    reserved,
    with_finalizer,
)
from dracpu_sandbox.scheduler.deciding import SCHEDULER, Placement, Refusal, decide, is_pending
from dracpu_sandbox.scheduler.devices import Slice, read_slice
from dracpu_sandbox.scheduler.pools import Inventory
from dracpu_sandbox.scheduler.requests import read_class
from dracpu_sandbox.scheduler.world import World, is_finished

_log = logging.getLogger(__name__)


class Scheduler:
    """Gives nodes to pods that have none, and devices to their claims. One per cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._pods = Following(client, PODS)
        self._claims = Following(client, CLAIMS)
        self._nodes = Following(client, NODES)
        self._classes = Following(client, DEVICE_CLASSES)
        self._slices = Following(client, SLICES)
        self._all = (self._pods, self._claims, self._nodes, self._classes, self._slices)
        self._read_slices: dict[tuple[str, str], Slice | None] = {}  # by UID and version; None: it could not be read
        self._wake = asyncio.Event()
        self._events = EventRecorder(client, SCHEDULER)
        self._failures: Counter[str] = Counter()  # by the pod's UID: a pod that fails waits behind the others
        self._pods.listen(self._pod_changed)
        for following in self._all[1:]:
            following.listen(lambda event: self._wake.set())

    async def run(self) -> None:
        """Schedules pods until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for following in self._all:
                tasks.create_task(following.run(), name="scheduler follows")
            tasks.create_task(self._events.run(), name="scheduler posts events")
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    if all(following.ready for following in self._all):  # else the last one to be ready wakes us
                        await self._round()
                except SandboxError as error:
                    _log.info("the scheduler tries again: %s", error)
                    await asyncio.sleep(pause_after(error))
                    self._wake.set()

    def _pod_changed(self, event: Event) -> None:
        """What running pods report about themselves changes nothing here."""
        pod = event.object
        if event.type != "MODIFIED" or is_pending(pod) or is_finished(pod):
            self._wake.set()

    async def _round(self) -> None:
        """Tries all pods that wait, the oldest first. An error ends the round: the next one sees what was written."""
        pending = [pod for pod in self._pods.all() if is_pending(pod)]
        if not pending:
            self._failures.clear()
            return
        world = self._picture()
        for pod in sorted(pending, key=self._turn):
            try:
                match decide(pod, world):
                    case Placement() as placement:
                        await self._place(pod, placement, world)
                    case Refusal() as refusal:
                        await self._refuse(pod, refusal)
            except NotFoundError:
                continue  # the pod or a claim was deleted; the watch will report which
            except SandboxError:
                self._failures[pod["metadata"]["uid"]] += 1
                raise
            await asyncio.sleep(0)  # a long queue must not keep the loop from everything else

    def _turn(self, pod: JsonObject) -> tuple[int, str, str]:
        metadata = pod["metadata"]
        return self._failures[metadata["uid"]], metadata["creationTimestamp"], metadata["name"]

    def _picture(self) -> World:
        """The cluster as it is known before anything is awaited: only now it is known to be complete."""
        return World(
            nodes={node["metadata"]["name"]: node for node in self._nodes.all()},
            claims={key_of(claim): claim for claim in self._claims.all()},
            classes={body["metadata"]["name"]: read_class(body) for body in self._classes.all()},
            inventory=self._inventory(),
            pods=list(self._pods.all()),
        )

    def _inventory(self) -> Inventory:
        """The pools of all slices. A slice that has not changed is not read again: answers are remembered by device."""
        former, self._read_slices = self._read_slices, {}
        for body in self._slices.all():
            key = body["metadata"]["uid"], body["metadata"]["resourceVersion"]
            self._read_slices[key] = former[key] if key in former else _read(body)
        return Inventory(item for item in self._read_slices.values() if item is not None)

    async def _place(self, pod: JsonObject, placement: Placement, world: World) -> None:
        """Claims first, the pod last: when it is bound, its claims are ready for the kubelet."""
        for name in claim_names(pod) or ():
            key = pod["metadata"]["namespace"], name
            claim, allocation = world.claims[key], placement.allocations.get(key)
            if is_reserved_for(claim, pod) and allocation_of(claim) is not None:
                continue  # from a former attempt
            if allocation is not None and not has_finalizer(claim):
                claim = await self._write(with_finalizer(claim, wanted=True))
            world.claims[key] = await self._write(reserved(claim, pod, allocation), "status")
            if allocation is not None:
                world.usage.add_claim(world.claims[key])
        await self._bind(pod, placement.node)
        world.placed(pod, placement.node)

    async def _write(self, claim: JsonObject, subresource: str = "") -> JsonObject:
        typed = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, **claim}  # items of a list have neither
        written = await self._client.replace(CLAIMS, typed, subresource)
        self._claims.wrote(written)
        return written

    async def _bind(self, pod: JsonObject, node: str) -> None:
        metadata = {name: pod["metadata"][name] for name in ("name", "namespace", "uid")}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._client.create(PODS, binding, subresource="binding")
        self._pods.wrote(await self._client.get(PODS, metadata["name"], metadata["namespace"]))
        note = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        self._events.emit(pod, "Scheduled", note, action="Binding")

    async def _refuse(self, pod: JsonObject, refusal: Refusal) -> None:
        wanted = condition("PodScheduled", False, refusal.reason, refusal.message)
        if not has_condition(pod, wanted):
            self._pods.wrote(await self._client.patch_status(PODS, pod, {"conditions": [wanted]}, manager=SCHEDULER))
            self._events.emit(pod, "FailedScheduling", refusal.message, action="Scheduling", warning=True)


def _read(body: JsonObject) -> Slice | None:
    try:
        return read_slice(body)
    except (KeyError, TypeError, ValueError, QuantityError) as error:
        _log.warning("ResourceSlice %s is ignored: %s", body["metadata"]["name"], error)
        return None

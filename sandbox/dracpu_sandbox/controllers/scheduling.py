"""Runs the scheduler: it watches the cluster, decides on one pod after the other, and writes its decisions."""

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
    """Assigns nodes to pods that have none, and devices to their claims. A cluster has one scheduler."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._pods = Following(client, PODS)
        self._claims = Following(client, CLAIMS)
        self._nodes = Following(client, NODES)
        self._classes = Following(client, DEVICE_CLASSES)
        self._slices = Following(client, SLICES)
        self._all = (self._pods, self._claims, self._nodes, self._classes, self._slices)
        self._read_slices: dict[tuple[str, str], Slice | None] = {}  # by UID and version; None: the slice is invalid
        self._wake = asyncio.Event()
        self._events = EventRecorder(client, SCHEDULER)
        self._failures: Counter[str] = Counter()  # by the pod's UID: pods that fail come last
        self._pods.listen(self._pod_changed)
        for following in self._all[1:]:
            following.listen(lambda event: self._wake.set())

    async def run(self) -> None:
        """Schedules pods until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for following in self._all:
                tasks.create_task(following.run(), name="scheduler follows")
            tasks.create_task(self._events.run(), name="scheduler posts events")
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    if all(following.ready for following in self._all):  # the last watch to become ready sets the event
                        await self._round()
                except SandboxError as error:
                    _log.info("the scheduler will retry: %s", error)
                    await asyncio.sleep(pause_after(error))
                    self._wake.set()

    def _pod_changed(self, event: Event) -> None:
        """Ignores the status reports of running pods, which do not affect scheduling."""
        pod = event.object
        if event.type != "MODIFIED" or is_pending(pod) or is_finished(pod):
            self._wake.set()

    async def _round(self) -> None:
        """Tries all pending pods, the oldest first. An error ends the round: the next round reads what was written."""
        pending = [pod for pod in self._pods.all() if is_pending(pod)]
        if not pending:
            self._failures.clear()
            return
        world = self._snapshot()
        for pod in sorted(pending, key=self._priority):
            try:
                match decide(pod, world):
                    case Placement() as placement:
                        await self._place(pod, placement, world)
                    case Refusal() as refusal:
                        await self._refuse(pod, refusal)
            except NotFoundError:
                continue  # the pod or a claim was deleted, which the watch will report
            except SandboxError:
                self._failures[pod["metadata"]["uid"]] += 1
                raise
            await asyncio.sleep(0)  # a long queue must not block the event loop

    def _priority(self, pod: JsonObject) -> tuple[int, str, str]:
        metadata = pod["metadata"]
        return self._failures[metadata["uid"]], metadata["creationTimestamp"], metadata["name"]

    def _snapshot(self) -> World:
        """Returns the known state of the cluster. Call it before the first await: later, it may be incomplete."""
        return World(
            nodes={node["metadata"]["name"]: node for node in self._nodes.all()},
            claims={key_of(claim): claim for claim in self._claims.all()},
            classes={body["metadata"]["name"]: read_class(body) for body in self._classes.all()},
            inventory=self._inventory(),
            pods=list(self._pods.all()),
        )

    def _inventory(self) -> Inventory:
        """Returns the pools of all slices. Unchanged slices are not parsed again, as answers are cached by device."""
        former, self._read_slices = self._read_slices, {}
        for body in self._slices.all():
            key = body["metadata"]["uid"], body["metadata"]["resourceVersion"]
            self._read_slices[key] = former[key] if key in former else _read(body)
        return Inventory(item for item in self._read_slices.values() if item is not None)

    async def _place(self, pod: JsonObject, placement: Placement, world: World) -> None:
        """Writes the claims first and binds the pod last, so that its claims are ready when the kubelet starts it."""
        for name in claim_names(pod) or ():
            key = pod["metadata"]["namespace"], name
            claim, allocation = world.claims[key], placement.allocations.get(key)
            if is_reserved_for(claim, pod) and allocation_of(claim) is not None:
                continue  # an earlier attempt has written it
            if allocation is not None and not has_finalizer(claim):
                claim = await self._write(with_finalizer(claim, protected=True))
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
        expected = condition("PodScheduled", False, refusal.reason, refusal.message)
        if not has_condition(pod, expected):
            self._pods.wrote(await self._client.patch_status(PODS, pod, {"conditions": [expected]}, manager=SCHEDULER))
            self._events.emit(pod, "FailedScheduling", refusal.message, action="Scheduling", warning=True)


def _read(body: JsonObject) -> Slice | None:
    try:
        return read_slice(body)
    except (KeyError, TypeError, ValueError, QuantityError) as error:
        _log.warning("ResourceSlice %s is ignored: %s", body["metadata"]["name"], error)
        return None

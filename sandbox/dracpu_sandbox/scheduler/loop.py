"""The scheduler at work: follows the cluster, decides one pod after the other, writes down what it has decided."""

import asyncio
import logging
from collections import Counter
from contextlib import suppress

from dracpu_sandbox.client import Event, KubeClient, NotFoundError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import CLAIMS, DEVICE_CLASSES, EVENTS, NODES, PODS, SLICES, JsonObject
from dracpu_sandbox.scheduler.claims import (
    allocation_of,
    claims_of,
    has_finalizer,
    is_reserved_for,
    released,
    reserved,
    standing,
    with_finalizer,
)
from dracpu_sandbox.scheduler.deciding import SCHEDULER, Placement, Refusal, TooEarly, decide, is_pending, order
from dracpu_sandbox.scheduler.events import condition, has_condition, pod_event
from dracpu_sandbox.scheduler.following import Following, pause_after
from dracpu_sandbox.scheduler.reading import SliceReader, read_classes
from dracpu_sandbox.scheduler.world import Key, World, is_finished, key_of

_log = logging.getLogger(__name__)


class Scheduler:
    """Gives pods without a node one, and claims their devices. One per cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._pods = Following(client, PODS)
        self._claims = Following(client, CLAIMS)
        self._nodes = Following(client, NODES)
        self._classes = Following(client, DEVICE_CLASSES)
        self._slices = Following(client, SLICES)
        self._all = (self._pods, self._claims, self._nodes, self._classes, self._slices)
        self._reader = SliceReader()
        self._wake = asyncio.Event()
        self._events: asyncio.Queue[JsonObject] = asyncio.Queue()
        self._doubtful: set[Key] = set()  # claims of which nobody knows whether the last write arrived
        self._failures: Counter[str] = Counter()  # by UID of the pod: who fails waits behind the others
        self._standings: dict[Key, object] = {}
        self._pods.listen(self._pod_changed)
        self._claims.listen(self._claim_changed)
        for following in self._all[2:]:
            following.listen(lambda event: self._wake.set())

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for following in self._all:
                tasks.create_task(following.run(), name="scheduler follows")
            tasks.create_task(self._post_events(), name="scheduler posts events")
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    await self._look_again()
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

    def _claim_changed(self, event: Event) -> None:
        """What drivers report about devices changes nothing here, and they report much."""
        if event.type in {"ADDED", "MODIFIED"}:
            key, now = key_of(event.object), standing(event.object)
            if self._standings.get(key) == now:
                return
            self._standings[key] = now
        elif event.type == "DELETED":
            self._standings.pop(key_of(event.object), None)
        self._wake.set()

    async def _round(self) -> None:
        """Tries all pods that wait. An error ends the round: what was written is looked at anew.

        The picture must be taken before anything is awaited: what is followed is known to be complete only now.
        """
        pending = [pod for pod in self._pods.all() if is_pending(pod)]
        if not pending:
            self._failures.clear()
            return
        world = self._picture()
        for pod in sorted(pending, key=lambda one: (self._failures[one["metadata"]["uid"]], *order(one))):
            try:
                match decide(pod, world):
                    case Placement() as placement:
                        await self._place(pod, placement, world)
                    case Refusal() as refusal:
                        await self._refuse(pod, refusal)
                    case TooEarly():
                        continue
            except NotFoundError:
                await self._look_again()  # the pod or a claim is gone; the watch will say which
            except SandboxError:
                self._failures[pod["metadata"]["uid"]] += 1
                raise
            await asyncio.sleep(0)  # a long queue must not keep the loop from everything else

    def _picture(self) -> World:
        return World(
            nodes={node["metadata"]["name"]: node for node in self._nodes.all()},
            claims={key_of(claim): claim for claim in self._claims.all()},
            classes=read_classes(self._classes.all()),
            inventory=self._reader.inventory(self._slices.all()),
            pods=list(self._pods.all()),
        )

    async def _place(self, pod: JsonObject, placement: Placement, world: World) -> None:
        """Claims first, the pod last: when it is bound, its claims are ready for the kubelet."""
        namespace = pod["metadata"]["namespace"]
        for one in claims_of(pod):
            claim = world.claims.get((namespace, one.name or ""))
            if claim is None:
                continue
            if is_reserved_for(claim, pod) and allocation_of(claim) is not None:
                continue  # from a former attempt, or the pod names it twice
            allocation = placement.allocations.get(key_of(claim))
            written = await self._reserve(claim, pod, allocation)
            world.claims[key_of(claim)] = written
            if allocation is not None:
                world.usage.add(written)
        await self._bind(pod, placement.node)
        world.placed({**pod, "spec": {**pod["spec"], "nodeName": placement.node}})

    async def _reserve(self, claim: JsonObject, pod: JsonObject, allocation: JsonObject | None) -> JsonObject:
        if allocation is not None and not has_finalizer(claim):
            claim = await self._write(with_finalizer(claim, wanted=True))
        return await self._write(reserved(claim, pod, allocation), "status")

    async def _write(self, claim: JsonObject, subresource: str = "") -> JsonObject:
        self._doubtful.add(key_of(claim))
        typed = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, **claim}  # what is listed does not say so
        written = await self._client.replace(CLAIMS, typed, subresource)
        self._claims.wrote(written)
        self._doubtful.discard(key_of(claim))
        return written

    async def _look_again(self) -> None:
        """Reads the claims whose last write failed: it may have arrived all the same."""
        for namespace, name in list(self._doubtful):
            with suppress(NotFoundError):  # deleted: the watch will say so
                self._claims.wrote(await self._client.get(CLAIMS, name, namespace))
            self._doubtful.discard((namespace, name))

    async def _bind(self, pod: JsonObject, node: str) -> None:
        metadata = {name: pod["metadata"][name] for name in ("name", "namespace", "uid")}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._client.create(PODS, binding, subresource="binding")
        self._pods.wrote(await self._client.get(PODS, metadata["name"], metadata["namespace"]))
        note = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        self._tell(pod, reason="Scheduled", note=note, warning=False)

    async def _refuse(self, pod: JsonObject, refusal: Refusal) -> None:
        for key in refusal.release:
            claim = self._claims.get(key)
            if claim is not None:
                await self._write(released(claim, lambda user: False), "status")
        wanted = condition("PodScheduled", False, refusal.reason, refusal.message)
        if has_condition(pod, wanted):
            return
        written = await self._client.patch_status(PODS, pod, {"conditions": [wanted]}, manager=SCHEDULER)
        self._pods.wrote(written)
        self._tell(pod, reason="FailedScheduling", note=refusal.message, warning=True)

    def _tell(self, pod: JsonObject, *, reason: str, note: str, warning: bool) -> None:
        action = "Scheduling" if warning else "Binding"
        event = pod_event(pod, reporter=SCHEDULER, reason=reason, note=note, action=action, warning=warning)
        self._events.put_nowait(event)

    async def _post_events(self) -> None:
        """Beside the work: no pod waits for an Event, and none is scheduled again because one was lost."""
        while True:
            event = await self._events.get()
            try:
                await self._client.create(EVENTS, event)
            except SandboxError as error:
                _log.info("an event is lost: %s: %s", event["note"], error)

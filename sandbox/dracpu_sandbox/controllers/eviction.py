"""Pods whose devices are tainted NoExecute are deleted, unless the claim tolerates it (for long enough)."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import ClassVar, Final

from dracpu_sandbox.client import Event
from dracpu_sandbox.controllers.controller import Cluster, Controller, Duty
from dracpu_sandbox.controllers.releasing import uses
from dracpu_sandbox.resources import PODS, JsonObject
from dracpu_sandbox.scheduler.claims import allocation_of, users
from dracpu_sandbox.scheduler.events import condition
from dracpu_sandbox.scheduler.nodes import tolerated

Taints = Mapping[tuple[str, str, str], list[JsonObject]]  # NoExecute, by driver, pool and device

NEVER: Final = float("inf")


class DeviceTaintEvictor(Controller):
    """Deletes pods at the moment when the first of their devices is no longer tolerated."""

    name: ClassVar[str] = "device-taint-eviction"

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.time) -> None:
        super().__init__(cluster, cluster.pods, cluster.claims, cluster.slices)
        self._clock = clock
        self._taints: Taints | None = None  # unknown since a slice has changed
        cluster.slices.listen(self._forget_taints)

    def duties(self) -> Iterable[Duty]:
        for pod, moment in list(self._condemned()):
            if moment <= self._clock():
                yield partial(self._evict, pod)

    def seconds_left(self) -> float | None:
        moments = [moment for _, moment in self._condemned() if moment > self._clock()]
        return max(min(moments) - self._clock(), 0.0) if moments else None

    def _forget_taints(self, event: Event) -> None:
        self._taints = None

    def _condemned(self) -> Iterator[tuple[JsonObject, float]]:
        if self._taints is None:
            self._taints = taints_by_device(self.cluster.slices.all())
        if not self._taints:
            return
        for claim in self.cluster.claims.all():
            moment = end_of_tolerance(claim, self._taints)
            for user in users(claim) if moment < NEVER else ():
                pod = self.cluster.pods.get((claim["metadata"]["namespace"], user["name"]))
                if pod is not None and uses(pod, user["uid"]) and not pod["metadata"].get("deletionTimestamp"):
                    yield pod, moment

    async def _evict(self, pod: JsonObject) -> None:
        metadata, client = pod["metadata"], self.cluster.client
        name, namespace = metadata["name"], metadata["namespace"]
        reason = condition(
            "DisruptionTarget",
            True,
            "DeletionByDeviceTaintManager",
            "Device Taint manager: deleting due to NoExecute taint",
        )
        await client.patch_status(PODS, pod, {"conditions": [reason]}, manager=self.name)
        await client.delete(PODS, name, namespace, uid=metadata["uid"])
        await self.tell(
            pod,
            reason="DeviceTaintManagerEviction",
            note=f"Marking for deletion Pod {namespace}/{name}",
            action="Evict",
        )


def taints_by_device(slices: Iterable[JsonObject]) -> Taints:
    """The NoExecute taints of all devices that have some, as the newest generation of their pool says."""
    found: dict[tuple[str, str, str], list[JsonObject]] = {}
    for spec in _newest(body["spec"] for body in slices):
        for device in spec.get("devices") or ():
            taints = [one for one in device.get("taints") or () if one["effect"] == "NoExecute"]
            if taints:
                found[spec["driver"], spec["pool"]["name"], device["name"]] = taints
    return found


def _newest(specs: Iterable[JsonObject]) -> Iterator[JsonObject]:
    pools: dict[tuple[str, str], list[JsonObject]] = {}
    for spec in specs:
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    for pool in pools.values():
        generation = max(_generation(spec) for spec in pool)
        yield from (spec for spec in pool if _generation(spec) == generation)


def _generation(spec: JsonObject) -> int:
    return int(spec["pool"].get("generation") or 0)


def end_of_tolerance(claim: JsonObject, taints: Taints) -> float:
    """When the claim's users must go, in seconds since 1970; NEVER when there is no need."""
    results = ((allocation_of(claim) or {}).get("devices") or {}).get("results") or ()
    return min(
        (
            _end(taint, result.get("tolerations") or ())
            for result in results
            for taint in taints.get((result["driver"], result["pool"], result["device"]), ())
        ),
        default=NEVER,
    )


def _end(taint: JsonObject, tolerations: Iterable[JsonObject]) -> float:
    fitting = [one for one in tolerations if tolerated(taint, [one])]
    if not fitting:
        return 0.0
    limits = [one["tolerationSeconds"] for one in fitting if one.get("tolerationSeconds") is not None]
    if not limits:
        return NEVER
    since = datetime.fromisoformat(taint["timeAdded"]).timestamp() if taint.get("timeAdded") else 0.0
    return since + float(max(min(limits), 0))

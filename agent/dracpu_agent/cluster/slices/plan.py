"""Plans the writes that turn a pool's existing slices into the desired ones. Pure.

The rules are those of the Go driver helper, so that either driver can replace the other on a node:

- The highest generation counts, and only when all its slices exist. If one slice changes, it is rewritten in its
  generation, which readers see as one step. If more change, all are rewritten in the next generation, so that no reader
  takes a mixture of old and new slices for a complete pool.
- Deletions come first, then updates, then creations.
- A slice is identified by the index that its name begins with. The scheduler tries slices in the order of their names,
  so the index keeps the devices in order.

Planning again after any interruption leads to the same result, because a plan depends only on the existing slices.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dracpu_api.resources import RESOURCE_SLICES, JsonObject

DEVICES_PER_SLICE: Final = 64  # Kubernetes: 128 without taints, 64 with; any device may get a taint

_INDEX: Final = re.compile(r"([0-9a-f]{5,})-")


@dataclass(frozen=True, slots=True)
class Pool:
    """One driver's pool on one node."""

    driver: str
    node_name: str
    node_uid: str  # "" until it is known

    @property
    def name(self) -> str:
        """Pools are named like their node."""
        return self.node_name


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    """Deletes a slice if it has not changed since it was read."""

    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class ReplaceSlice:
    """Replaces a slice if it has not changed since it was read (metadata.resourceVersion)."""

    body: JsonObject


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """Creates a slice, whose name the server generates."""

    body: JsonObject


@dataclass(frozen=True, slots=True)
class Adoption:
    """Devices that the API server changed when it stored them: the stored ones count as equal to the sent ones."""

    sent: Sequence[JsonObject]
    stored: Sequence[JsonObject]


Operation = DeleteSlice | ReplaceSlice | CreateSlice


def plan(
    pool: Pool,
    devices: Sequence[JsonObject],
    existing: Collection[JsonObject],
    adopted: Collection[Adoption] = (),
) -> list[Operation]:
    """The operations that lead from the existing slices to the desired devices, in order; none if nothing differs.

    Without devices there is an empty slice, which distinguishes "no devices" from "no driver".
    """
    ours = [stored for stored in existing if _belongs(stored, pool)]
    kept, obsolete = _match(ours, pool, count := max(1, -(-len(devices) // DEVICES_PER_SLICE)))
    taint_times = _taint_times(ours)
    generation, _ = current(ours)

    desired = [
        _slice(pool, index, generation, count, devices[index * DEVICES_PER_SLICE :][:DEVICES_PER_SLICE])
        for index in range(count)
    ]
    changed = [index for index, stored in kept.items() if not _same(stored, desired[index], adopted)]
    if len(kept) < count or len(changed) > 1:
        changed = list(kept)
        for body in desired:
            body["spec"]["pool"]["generation"] = generation + 1
    return [
        *(_deletion(stored) for stored in obsolete),
        *(ReplaceSlice(_onto(kept[index], desired[index], taint_times)) for index in sorted(changed)),
        *(CreateSlice(desired[index]) for index in range(count) if index not in kept),
    ]


def plan_withdrawal(pool: Pool, existing: Collection[JsonObject]) -> list[Operation]:
    """The operations that delete all slices of the pool."""
    return [_deletion(stored) for stored in existing if _belongs(stored, pool)]


def slice_of(pool: Pool, devices: Sequence[JsonObject]) -> JsonObject:
    """The only slice of a new pool."""
    return _slice(pool, 0, 1, 1, devices)


def plain(devices: Sequence[JsonObject]) -> list[JsonObject]:
    """Devices without the field that the API server adds: the time at which a taint was added."""
    return [
        device
        if "taints" not in device
        else {**device, "taints": [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in device["taints"]]}
        for device in devices
    ]


def devices_of(resource_slice: JsonObject) -> list[JsonObject]:
    """The devices of a slice; the key is absent in an empty one."""
    return resource_slice["spec"].get("devices") or []


def share_equal(devices: Sequence[JsonObject], existing: Collection[JsonObject]) -> None:
    """Replaces devices of the existing slices by the equal desired ones, so that the memory holds each only once."""
    desired = {device["name"]: device for device in devices}
    for stored in existing:
        found = devices_of(stored)
        found[:] = [ours if (ours := desired.get(device["name"])) == device else device for device in found]


def current(existing: Collection[JsonObject]) -> tuple[int, list[JsonObject]]:
    """The highest generation and its slices, which are the ones that a scheduler uses."""
    generation = max(map(_generation, existing), default=0)
    return generation, [stored for stored in existing if _generation(stored) == generation]


def _belongs(resource_slice: JsonObject, pool: Pool) -> bool:
    spec = resource_slice["spec"]
    return bool(spec.get("driver") == pool.driver and spec.get("nodeName") == pool.node_name)


def _generation(resource_slice: JsonObject) -> int:
    return int(resource_slice["spec"]["pool"]["generation"])


def _match(existing: Collection[JsonObject], pool: Pool, count: int) -> tuple[dict[int, JsonObject], list[JsonObject]]:
    """The slice to keep for each index, of the highest generation if there are several, and the obsolete slices."""
    kept: dict[int, JsonObject] = {}
    obsolete = []
    for stored in sorted(existing, key=lambda candidate: (-_generation(candidate), candidate["metadata"]["name"])):
        index = _index(stored)
        if stored["spec"]["pool"]["name"] == pool.name and index is not None and index < count and index not in kept:
            kept[index] = stored
        else:
            obsolete.append(stored)
    return kept, obsolete


def _index(resource_slice: JsonObject) -> int | None:
    match = _INDEX.match(resource_slice["metadata"]["name"])
    return int(match.group(1), 16) if match else None


def _slice(pool: Pool, index: int, generation: int, count: int, devices: Sequence[JsonObject]) -> JsonObject:
    owner = {"apiVersion": "v1", "kind": "Node", "name": pool.node_name, "uid": pool.node_uid, "controller": True}
    spec: JsonObject = {
        "driver": pool.driver,
        "nodeName": pool.node_name,
        "pool": {"name": pool.name, "generation": generation, "resourceSliceCount": count},
    }
    if devices:  # without devices the key is left out: even an empty list would declare "a slice of devices"
        spec["devices"] = list(devices)
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"generateName": f"{index:05x}-{pool.driver}-{pool.node_name}-", "ownerReferences": [owner]},
        "spec": spec,
    }


def _same(stored: JsonObject, desired: JsonObject, adopted: Collection[Adoption]) -> bool:
    if stored["metadata"].get("ownerReferences") != desired["metadata"]["ownerReferences"]:
        return False
    if stored["spec"]["pool"] != desired["spec"]["pool"]:
        return False
    theirs, ours = plain(devices_of(stored)), plain(devices_of(desired))
    return theirs == ours or Adoption(ours, theirs) in adopted


def _deletion(stored: JsonObject) -> DeleteSlice:
    metadata = stored["metadata"]
    return DeleteSlice(metadata["name"], metadata["uid"], metadata["resourceVersion"])


def _onto(stored: JsonObject, desired: JsonObject, taint_times: Mapping[tuple[str, ...], str]) -> JsonObject:
    """The stored slice with the desired devices and owner; the rest of its metadata stays."""
    metadata = {key: value for key, value in stored["metadata"].items() if key != "managedFields"}
    spec = dict(desired["spec"])
    if "devices" in spec:
        spec["devices"] = [_with_times(device, taint_times) for device in spec["devices"]]
    owners = desired["metadata"]["ownerReferences"]
    return {**desired, "metadata": {**metadata, "ownerReferences": owners}, "spec": spec}


def _taint_times(existing: Collection[JsonObject]) -> dict[tuple[str, ...], str]:
    """When each taint was added: tolerations may be limited in time, and a rewrite must not restart that time."""
    return {
        _taint_key(device, taint): taint["timeAdded"]
        for stored in existing
        for device in devices_of(stored)
        for taint in device.get("taints") or ()
        if "timeAdded" in taint
    }


def _with_times(device: JsonObject, times: Mapping[tuple[str, ...], str]) -> JsonObject:
    if "taints" not in device:
        return device
    taints = [
        taint | ({"timeAdded": times[key]} if (key := _taint_key(device, taint)) in times else {})
        for taint in device["taints"]
    ]
    return {**device, "taints": taints}


def _taint_key(device: JsonObject, taint: JsonObject) -> tuple[str, ...]:
    return device["name"], taint["key"], taint.get("value", ""), taint["effect"]

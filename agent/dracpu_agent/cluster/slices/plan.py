"""What must be written so that a pool's slices become the ones that are wanted. Pure.

The rules are those of the Go driver helper, so that the two may follow each other on a node:

- The highest generation counts, and only when all its slices are there. One slice changed: it is rewritten in its
  generation, which readers see as one step. More than that: all are rewritten in the next generation, so that nobody
  takes a mixture of old and new for a complete pool.
- First deletions, then updates, then creations.
- A slice is known by the index that its name begins with. The scheduler tries slices by name: the index keeps devices
  in their order.

Planning again after any interruption leads to the same end, because a plan follows from what stands there, not from
what was done before.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dracpu_api.resources import RESOURCE_SLICES, JsonObject

DEVICES_PER_SLICE: Final = 64  # 128 are allowed until one of them carries a taint, which every device may some day

_INDEX: Final = re.compile(r"([0-9a-f]{5,})-")


@dataclass(frozen=True, slots=True)
class Pool:
    """One driver's devices on one node."""

    driver: str
    node_name: str
    node_uid: str  # "" as long as it is not known

    @property
    def name(self) -> str:
        """Pools are named like their node."""
        return self.node_name


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    """Only when the slice is still the one that was seen."""

    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class ReplaceSlice:
    """Only when the slice is still the one that was seen (metadata.resourceVersion)."""

    body: JsonObject


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """A slice that gets its name from the server."""

    body: JsonObject


@dataclass(frozen=True, slots=True)
class Adoption:
    """Devices that the API server stored otherwise than they were sent, which is taken for the same from then on."""

    sent: Sequence[JsonObject]
    stored: Sequence[JsonObject]


Operation = DeleteSlice | ReplaceSlice | CreateSlice


def plan(
    pool: Pool,
    devices: Sequence[JsonObject],
    existing: Collection[JsonObject],
    adopted: Collection[Adoption] = (),
) -> list[Operation]:
    """The operations that lead from the existing slices to the wanted devices, in order; none when all is well.

    Without devices an empty slice is wanted: it tells apart "no devices" from "no driver".
    """
    ours = [one for one in existing if _belongs(one, pool)]
    kept, obsolete = _match(ours, pool, count := max(1, -(-len(devices) // DEVICES_PER_SLICE)))
    taint_times = _taint_times(ours)
    generation, _ = current(ours)

    wanted = [
        _slice(pool, index, generation, count, devices[index * DEVICES_PER_SLICE :][:DEVICES_PER_SLICE])
        for index in range(count)
    ]
    changed = [index for index, stored in kept.items() if not _same(stored, wanted[index], adopted)]
    if len(kept) < count or len(changed) > 1:
        changed = list(kept)
        for body in wanted:
            body["spec"]["pool"]["generation"] = generation + 1
    return [
        *(_deletion(stored) for stored in obsolete),
        *(ReplaceSlice(_onto(kept[index], wanted[index], taint_times)) for index in sorted(changed)),
        *(CreateSlice(wanted[index]) for index in range(count) if index not in kept),
    ]


def plan_withdrawal(pool: Pool, existing: Collection[JsonObject]) -> list[Operation]:
    """The operations that leave nothing of the pool."""
    return [_deletion(stored) for stored in existing if _belongs(stored, pool)]


def slice_of(pool: Pool, devices: Sequence[JsonObject]) -> JsonObject:
    """A pool of one slice, new."""
    return _slice(pool, 0, 1, 1, devices)


def plain(devices: Sequence[JsonObject]) -> list[JsonObject]:
    """Devices without what the API server fills in by itself: the time at which a taint was added."""
    return [
        device
        if "taints" not in device
        else {**device, "taints": [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in device["taints"]]}
        for device in devices
    ]


def devices_of(resource_slice: JsonObject) -> list[JsonObject]:
    """The devices of a slice; the key is absent in an empty one."""
    return resource_slice["spec"].get("devices") or []


def current(existing: Collection[JsonObject]) -> tuple[int, list[JsonObject]]:
    """The highest generation and its slices: what a scheduler looks at."""
    generation = max(map(_generation, existing), default=0)
    return generation, [one for one in existing if _generation(one) == generation]


def _belongs(resource_slice: JsonObject, pool: Pool) -> bool:
    spec = resource_slice["spec"]
    return bool(spec.get("driver") == pool.driver and spec.get("nodeName") == pool.node_name)


def _generation(resource_slice: JsonObject) -> int:
    return int(resource_slice["spec"]["pool"]["generation"])


def _match(existing: Collection[JsonObject], pool: Pool, count: int) -> tuple[dict[int, JsonObject], list[JsonObject]]:
    """One slice for each index, of the highest generation if there are several, and those for which there is no use."""
    kept: dict[int, JsonObject] = {}
    obsolete = []
    for stored in sorted(existing, key=lambda one: (-_generation(one), one["metadata"]["name"])):
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
    if devices:  # an empty list is not the same as none: the key would stand for "this slice is of devices"
        spec["devices"] = list(devices)
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"generateName": f"{index:05x}-{pool.driver}-{pool.node_name}-", "ownerReferences": [owner]},
        "spec": spec,
    }


def _same(stored: JsonObject, wanted: JsonObject, adopted: Collection[Adoption]) -> bool:
    if stored["metadata"].get("ownerReferences") != wanted["metadata"]["ownerReferences"]:
        return False
    if stored["spec"]["pool"] != wanted["spec"]["pool"]:
        return False
    there, here = plain(devices_of(stored)), plain(devices_of(wanted))
    return there == here or Adoption(here, there) in adopted


def _deletion(stored: JsonObject) -> DeleteSlice:
    metadata = stored["metadata"]
    return DeleteSlice(metadata["name"], metadata["uid"], metadata["resourceVersion"])


def _onto(stored: JsonObject, wanted: JsonObject, taint_times: Mapping[tuple[str, ...], str]) -> JsonObject:
    """The wanted slice in the place of a stored one; what others wrote into its metadata stays."""
    metadata = {key: value for key, value in stored["metadata"].items() if key != "managedFields"}
    spec = dict(wanted["spec"])
    if "devices" in spec:
        spec["devices"] = [_with_times(device, taint_times) for device in spec["devices"]]
    owners = wanted["metadata"]["ownerReferences"]
    return {**wanted, "metadata": {**metadata, "ownerReferences": owners}, "spec": spec}


def _taint_times(existing: Collection[JsonObject]) -> dict[tuple[str, ...], str]:
    """When which taint was added: tolerations may be limited in time, which a rewrite must not start anew."""
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

"""Compares the devices that the API server stored with the devices that were sent. Pure.

A server whose feature gate is off drops the gate's fields without an error. Without taints or attributes a device is
still correct. Without the fields of consumable capacity, a group of CPUs that many claims share becomes a device that
one claim takes as a whole: such a device must not be published at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dracpu_agent.cluster.slices.plan import plain
from dracpu_api.resources import JsonObject

_SHARING = ("allowMultipleAllocations", "capacity")


@dataclass(frozen=True, slots=True)
class Dropped:
    """The fields that the server dropped or changed."""

    changes_meaning: bool
    message: str


def dropped(sent: Sequence[JsonObject], stored: Sequence[JsonObject]) -> Dropped | None:
    """None when the stored devices equal the devices that were sent."""
    sent, stored = plain(sent), plain(stored)
    if sent == stored:
        return None
    found = {device["name"]: device for device in stored}
    if any(device.get(field) != found.get(device["name"], {}).get(field) for device in sent for field in _SHARING):
        return Dropped(
            True,
            "the API server drops allowMultipleAllocations or capacity.requestPolicy, without which a group of CPUs "
            "cannot be shared: enable the feature gate DRAConsumableCapacity (on by default from Kubernetes 1.36) "
            "or set mode: individual in the CpuDriverConfig",
        )
    if any(device.get("taints") != found[device["name"]].get("taints") for device in sent):
        return Dropped(
            False,
            "the API server drops device taints, so claims may be allocated while this node cannot serve them: "
            "enable the feature gate DRADeviceTaints (on by default from Kubernetes 1.36)",
        )
    names = sorted({name for device in sent for name in _differing(device, found[device["name"]])})
    return Dropped(False, f"the API server changed fields of the devices: {', '.join(names) or 'their order'}")


def _differing(sent: JsonObject, stored: JsonObject) -> set[str]:
    fields = {name for name in {*sent, *stored} if sent.get(name) != stored.get(name)} - {"attributes"}
    ours, theirs = sent.get("attributes") or {}, stored.get("attributes") or {}
    return fields | {name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)}

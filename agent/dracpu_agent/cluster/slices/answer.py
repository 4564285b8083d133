"""Did the API server store what it was sent? Pure.

A server with a feature gate off drops that gate's fields without a word. Dropped taints or attributes are a pity;
without the fields of consumable capacity, a group of CPUs that many claims share becomes a device that one claim
takes whole, which must not be published at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dracpu_agent.cluster.slices.plan import plain
from dracpu_api.resources import JsonObject

_SHARING = ("allowMultipleAllocations", "capacity")


@dataclass(frozen=True, slots=True)
class Dropped:
    """What the server left out, or stored otherwise."""

    changes_meaning: bool
    message: str


def dropped(sent: Sequence[JsonObject], stored: Sequence[JsonObject]) -> Dropped | None:
    """None when the stored devices are those that were sent."""
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
    return Dropped(False, f"the API server stores devices otherwise than they were sent: {', '.join(names) or 'order'}")


def _differing(sent: JsonObject, stored: JsonObject) -> set[str]:
    fields = {name for name in {*sent, *stored} if sent.get(name) != stored.get(name)} - {"attributes"}
    here, there = sent.get("attributes") or {}, stored.get("attributes") or {}
    return fields | {name for name in {*here, *there} if here.get(name) != there.get(name)}

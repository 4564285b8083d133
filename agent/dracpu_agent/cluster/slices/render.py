"""Renders devices as JSON for ResourceSlices (resource.k8s.io/v1). Pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from dracpu_agent.devices.device import AttributeValue, Capacity, Device, Taint
from dracpu_api.quantity import format_binary, format_quantity
from dracpu_api.resources import JsonObject

_LISTS: Final = frozenset({"strings", "ints", "bools", "versions"})


def render_device(device: Device) -> JsonObject:
    """An entry of spec.devices. Empty fields are left out, as in the API server's answers."""
    rendered: JsonObject = {"name": device.name}
    if device.attributes:
        rendered["attributes"] = {name: _attribute(value) for name, value in device.attributes.items()}
    if device.capacity is not None:
        rendered["allowMultipleAllocations"] = True
        rendered["capacity"] = {each.name: _capacity(each) for each in (device.capacity, *device.beside)}
    if device.taints:
        rendered["taints"] = [_taint(taint) for taint in device.taints]
    return rendered


def without_lists(devices: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The devices without attributes that are lists; devices without such attributes are returned unchanged."""
    return tuple(_without_lists(device) for device in devices)


def _without_lists(device: JsonObject) -> JsonObject:
    attributes = device.get("attributes") or {}
    kept = {name: value for name, value in attributes.items() if _LISTS.isdisjoint(value)}
    if len(kept) == len(attributes):
        return device
    rest = {field: value for field, value in device.items() if field != "attributes"}
    return rest | {"attributes": kept} if kept else rest


@lru_cache(maxsize=256, typed=True)
def _attribute(value: AttributeValue) -> JsonObject:
    """The value with its type. Devices share the objects of equal values: thousands of CPUs have few sockets, NUMA
    nodes and types."""
    if isinstance(value, bool):  # before int, of which bool is a subclass
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    if isinstance(value, str):
        return {"string": value}
    return {"strings": list(value)}


def _capacity(capacity: Capacity) -> JsonObject:
    policy = capacity.policy
    text = format_binary if capacity.binary else format_quantity
    rendered: JsonObject = {"default": text(policy.default)}
    if policy.valid_values:
        rendered["validValues"] = [text(value) for value in policy.valid_values]
    elif policy.minimum is not None:
        rendered["validRange"] = {"min": text(policy.minimum)}
        if policy.step is not None:
            rendered["validRange"]["step"] = text(policy.step)
    return {"value": text(capacity.value), "requestPolicy": rendered}


def _taint(taint: Taint) -> JsonObject:
    rendered = {"key": taint.key, "effect": taint.effect}
    return rendered | {"value": taint.value} if taint.value else rendered

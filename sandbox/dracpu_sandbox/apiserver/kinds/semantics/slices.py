"""Rules and defaults of ResourceSlices: pools, devices, attributes, capacities, taints, counters."""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import gates, problems
from dracpu_sandbox.apiserver.kinds.checking import duplicates
from dracpu_sandbox.apiserver.kinds.gates import Gates
from dracpu_sandbox.apiserver.kinds.kind import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import names
from dracpu_sandbox.apiserver.kinds.semantics.policies import check_policy
from dracpu_sandbox.apiserver.kinds.semantics.requests import limited

_DEVICES: Final = 128
_DEVICES_WITH_MORE: Final = 64  # of a slice in which any device has taints, consumed counters or lists as attributes
_PROPERTIES: Final = 32  # attributes and capacities of a device
_TAINTS: Final = 16
_COUNTER_SETS: Final = 8
_COUNTERS: Final = 32
_CONSUMED_SETS: Final = 2
_TEXT_BYTES: Final = 64
_OTHER_SELECTIONS: Final = ("nodeSelector", "allNodes", "perDeviceNodeSelection")  # for devices of several nodes
_LISTS: Final = {"ints": "int", "bools": "bool", "strings": "string", "versions": "version"}
_VALUES: Final = ("int", "bool", "string", "version", *_LISTS)
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_GATED: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (  # gate, the part of a slice, fields of this part
    (gates.PARTITION_TYPES, "spec", ("partitionTypeAttribute",)),
    (gates.NODE_OPERATIONS, "spec", ("skipNodeOperations",)),
    (gates.CONSUMABLE_CAPACITY, "device", ("allowMultipleAllocations",)),
    (gates.CONSUMABLE_CAPACITY, "capacity", ("requestPolicy",)),
    (gates.DEVICE_TAINTS, "device", ("taints",)),
    (gates.LIST_ATTRIBUTES, "attribute", tuple(_LISTS)),
    (gates.NODE_ALLOCATABLE, "device", ("nodeAllocatableResources",)),
    (gates.COMPATIBILITY_GROUPS, "consumption", ("compatibilityGroups",)),
)


def slice_with_defaults(item: JsonObject) -> JsonObject:
    """Returns a slice whose taints have times."""
    spec: JsonObject = item["spec"]
    filled = {name: value for name, value in spec.items() if name != "devices"}
    if spec.get("devices"):
        filled["devices"] = [_device_with_defaults(device) for device in spec["devices"]]
    return {**item, "spec": filled}


def _device_with_defaults(device: JsonObject) -> JsonObject:
    if not device.get("taints"):
        return device
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # the API server stores whole seconds
    return {**device, "taints": [{"timeAdded": now, **taint} for taint in device["taints"]]}


def gated_slice(item: JsonObject, on: Gates) -> JsonObject:
    """Returns a slice without the fields whose feature gates are off."""
    off: dict[str, set[str]] = {part: set() for _, part, _ in _GATED}
    for gate, part, fields in _GATED:
        if gate not in on:
            off[part].update(fields)
    spec = _without(item["spec"], off["spec"])
    if spec.get("devices"):
        spec["devices"] = [_gated_device(device, off) for device in spec["devices"]]
    return {**item, "spec": spec}


def _gated_device(device: JsonObject, off: Mapping[str, Collection[str]]) -> JsonObject:
    left = _without(device, off["device"])
    for holder, part in (("capacity", "capacity"), ("attributes", "attribute")):
        if left.get(holder):
            left[holder] = {name: _without(value, off[part]) for name, value in left[holder].items()}
    if left.get("consumesCounters"):
        left["consumesCounters"] = [_without(consumed, off["consumption"]) for consumed in left["consumesCounters"]]
    return left


def _without(holder: JsonObject, dropped: Collection[str]) -> JsonObject:
    return {name: value for name, value in holder.items() if name not in dropped}


def check_slice(item: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """Yields the problems of a slice."""
    spec = item["spec"]
    yield from names.driver("spec.driver", spec["driver"])
    yield from _pool(spec["pool"])
    yield from _node(spec)
    devices, sets = spec.get("devices") or [], spec.get("sharedCounters") or []
    if devices and sets:
        yield problems.invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    limit = _DEVICES_WITH_MORE if any(map(_has_more, devices)) else _DEVICES
    yield from limited("spec.devices", devices, limit)
    yield from duplicates("spec.devices", [device["name"] for device in devices])
    for number, device in enumerate(devices[:_DEVICES]):
        yield from _device(device, f"spec.devices[{number}]")
    yield from limited("spec.sharedCounters", sets, _COUNTER_SETS)
    yield from duplicates("spec.sharedCounters", [counter_set["name"] for counter_set in sets])
    for number, counter_set in enumerate(sets[:_COUNTER_SETS]):
        yield from names.label(f"spec.sharedCounters[{number}].name", counter_set["name"])
        yield from _counters(counter_set, f"spec.sharedCounters[{number}]")
    if old is not None:
        yield from _changes(spec, old["spec"])


def _changes(spec: JsonObject, old: JsonObject) -> Iterator[Problem]:
    for name in ("driver", "nodeName"):
        if spec.get(name) != old.get(name):
            yield problems.invalid(f"spec.{name}", spec.get(name), "field is immutable")
    if spec["pool"]["name"] != old["pool"]["name"]:
        yield problems.invalid("spec.pool.name", spec["pool"]["name"], "field is immutable")


def _pool(pool: JsonObject) -> Iterator[Problem]:
    for part in pool["name"].split("/"):
        yield from names.subdomain("spec.pool.name", part)
    if pool["resourceSliceCount"] <= 0:
        yield problems.invalid("spec.pool.resourceSliceCount", pool["resourceSliceCount"], "must be greater than zero")
    if pool["generation"] < 0:
        yield problems.invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero")


def _node(spec: JsonObject) -> Iterator[Problem]:
    others = [name for name in _OTHER_SELECTIONS if spec.get(name)]
    if others:
        yield problems.unsupported_here("spec", f"slices with {others[0]}")
    elif not spec.get("nodeName"):
        yield problems.required("spec", f"exactly one of nodeName, {', '.join(_OTHER_SELECTIONS)} is required")
    else:
        yield from names.subdomain("spec.nodeName", spec["nodeName"])


def _device(device: JsonObject, path: str) -> Iterator[Problem]:
    yield from names.label(f"{path}.name", device["name"])
    attributes, capacities = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacities)
    if count > _PROPERTIES:
        detail = f"the total number of attributes and capacities must not exceed {_PROPERTIES}"
        yield problems.invalid(path, count, detail)
    for name, value in attributes.items():
        yield from names.device_identifier(f"{path}.attributes", name)
        yield from _attribute(value, f"{path}.attributes[{name}]")
    is_shared = bool(device.get("allowMultipleAllocations"))
    for name, capacity in capacities.items():
        yield from names.device_identifier(f"{path}.capacity", name)
        yield from check_policy(capacity, f"{path}.capacity[{name}].requestPolicy", is_shared=is_shared)
    taints = device.get("taints") or []
    yield from limited(f"{path}.taints", taints, _TAINTS)
    for number, taint in enumerate(taints[:_TAINTS]):
        yield from _taint(taint, f"{path}.taints[{number}]")
    consumed = device.get("consumesCounters") or []
    yield from limited(f"{path}.consumesCounters", consumed, _CONSUMED_SETS)
    yield from duplicates(f"{path}.consumesCounters", [consumption["counterSet"] for consumption in consumed])
    for number, consumption in enumerate(consumed[:_CONSUMED_SETS]):
        here = f"{path}.consumesCounters[{number}]"
        yield from names.label(f"{here}.counterSet", consumption["counterSet"])
        yield from _counters(consumption, here)


def _has_more(device: JsonObject) -> bool:
    has_lists = any(_LISTS.keys() & value.keys() for value in (device.get("attributes") or {}).values())
    return bool(has_lists or device.get("taints") or device.get("consumesCounters"))


def _attribute(value: JsonObject, path: str) -> Iterator[Problem]:
    given = [name for name in _VALUES if name in value and value[name] != []]
    if len(given) != 1:
        yield problems.invalid(path, value if given else "", "exactly one value must be specified")
    for name in given:
        if name not in _LISTS:
            yield from _text(name, value[name], f"{path}.{name}")
            continue
        for number, item in enumerate(value[name]):
            yield from _text(_LISTS[name], item, f"{path}.{name}[{number}]")


def _text(kind: str, value: Any, path: str) -> Iterator[Problem]:
    """Yields the problems of an attribute's text; numbers and booleans have none."""
    if kind == "version" and not _SEMVER.fullmatch(value):
        yield problems.invalid(path, value, "must be a string compatible with semver.org spec 2.0.0")
    if kind in {"string", "version"} and len(value.encode()) > _TEXT_BYTES:
        yield problems.too_long(path, _TEXT_BYTES)


def _taint(taint: JsonObject, path: str) -> Iterator[Problem]:
    yield from names.qualified(f"{path}.key", taint["key"])
    yield from names.label_value(f"{path}.value", taint.get("value", ""))


def _counters(holder: JsonObject, path: str) -> Iterator[Problem]:
    counters: dict[str, Any] = holder["counters"]
    if not counters:
        yield problems.required(f"{path}.counters")
    yield from limited(f"{path}.counters", list(counters), _COUNTERS)
    for name in counters:
        yield from names.label(f"{path}.counters", name)

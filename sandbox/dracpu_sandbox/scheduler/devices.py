"""Parses the devices in ResourceSlices."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dracpu_sandbox.cel.functions import from_quantity
from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.resources import JsonObject

DeviceId = tuple[str, str, str]  # driver, pool, device
Values = frozenset[tuple[str, Any]]  # the values of an attribute, each with its type: 1, "1" and true differ


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """The rule by which a requested amount is rounded to the consumed amount."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    minimum: Quantity | None = None  # validRange.min
    maximum: Quantity | None = None  # validRange.max
    step: Quantity | None = None  # validRange.step


@dataclass(frozen=True, slots=True)
class Capacity:
    """An amount that a device offers, with its request policy."""

    value: Quantity
    policy: RequestPolicy = RequestPolicy()


@dataclass(frozen=True, eq=False)
class Device:
    """A device, compared by identity. Names of attributes include their domain; capacity keys are left unchanged."""

    driver: str
    pool: str
    name: str
    shareable: bool  # allowMultipleAllocations
    attributes: Mapping[str, Values]
    capacity: Mapping[str, Capacity]
    consumes: tuple[tuple[str, str, Quantity], ...]  # counter set, counter, amount
    taints: tuple[JsonObject, ...]
    variables: JsonObject  # the value of `device` in CEL expressions

    @cached_property
    def id(self) -> DeviceId:
        """The names by which an allocation refers to the device."""
        return self.driver, self.pool, self.name


@dataclass(frozen=True, slots=True)
class Slice:
    """A ResourceSlice."""

    name: str
    node: str
    driver: str
    pool: str
    generation: int
    slices: int  # the number of slices in the pool
    devices: tuple[Device, ...]
    counters: Mapping[tuple[str, str], Quantity]  # by counter set and counter


def read_slice(body: JsonObject) -> Slice:
    """Parses a ResourceSlice. Raises ValueError and the errors that invalid fields cause."""
    spec = body["spec"]
    driver, pool = spec["driver"], spec["pool"]
    if not spec.get("nodeName"):
        raise ValueError("the sandbox's scheduler supports only slices with spec.nodeName")
    return Slice(
        body["metadata"]["name"],
        spec["nodeName"],
        driver,
        pool["name"],
        pool.get("generation", 0),
        pool["resourceSliceCount"],
        tuple(_device(driver, pool["name"], device) for device in spec.get("devices") or ()),
        {
            (counters["name"], name): Quantity.parse(counter["value"])
            for counters in spec.get("sharedCounters") or ()
            for name, counter in counters["counters"].items()
        },
    )


def _device(driver: str, pool: str, body: JsonObject) -> Device:
    attributes, shareable = body.get("attributes") or {}, bool(body.get("allowMultipleAllocations"))
    capacity = {key: _capacity(value) for key, value in (body.get("capacity") or {}).items()}
    return Device(
        driver,
        pool,
        body["name"],
        shareable,
        {_qualified(name, driver): _values(value) for name, value in attributes.items()},
        capacity,
        tuple(
            (consumed["counterSet"], name, Quantity.parse(counter["value"]))
            for consumed in body.get("consumesCounters") or ()
            for name, counter in consumed["counters"].items()
        ),
        tuple(body.get("taints") or ()),
        {
            "driver": driver,
            "attributes": _by_domain({name: _plain(value) for name, value in attributes.items()}, driver),
            "capacity": _by_domain({key: from_quantity(amount.value) for key, amount in capacity.items()}, driver),
            "allowMultipleAllocations": shareable,
        },
    )


def _values(attribute: JsonObject) -> Values:
    ((kind, value),) = attribute.items()  # "int", or "ints" with a list
    return frozenset((kind.removesuffix("s"), item) for item in (value if isinstance(value, list) else [value]))


def _plain(attribute: JsonObject) -> Any:
    ((_, value),) = attribute.items()
    return value


def _capacity(body: JsonObject) -> Capacity:
    policy = body.get("requestPolicy") or {}
    span = policy.get("validRange") or {}
    return Capacity(
        Quantity.parse(body["value"]),
        RequestPolicy(
            _optional(policy.get("default")),
            tuple(Quantity.parse(value) for value in policy.get("validValues") or ()),
            _optional(span.get("min")),
            _optional(span.get("max")),
            _optional(span.get("step")),
        ),
    )


def _optional(text: str | None) -> Quantity | None:
    return None if text is None else Quantity.parse(text)


def _qualified(name: str, driver: str) -> str:
    """Returns the name with its domain, which is the driver's by default."""
    return name if "/" in name else f"{driver}/{name}"


def _by_domain(values: Mapping[str, Any], driver: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        domain, _, name = _qualified(key, driver).partition("/")
        found.setdefault(domain, {})[name] = value
    return found

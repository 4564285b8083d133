"""Parses ResourceClaims and DeviceClasses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.resources import JsonObject

ALL: Final = -1  # as a count: all matching devices


@dataclass(frozen=True)
class Wanted:
    """An alternative of a request: the only one, or an entry of firstAvailable."""

    name: str  # as in results: "main", or "main/small"
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int = 1
    tolerations: tuple[JsonObject, ...] = ()
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)  # the unparsed amounts of `capacity`


@dataclass(frozen=True)
class Request:
    """A request of a claim; the first alternative that can be satisfied is used."""

    name: str
    ways: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Constraint:
    """Requires that an attribute is equal, or differs, in all devices of these requests; none means all requests."""

    attribute: str
    distinct: bool
    requests: frozenset[str]

    def covers(self, wanted: str) -> bool:
        """Whether the constraint applies to an alternative of a request, by its name in the results."""
        return not self.requests or wanted in self.requests or wanted.partition("/")[0] in self.requests


@dataclass(frozen=True)
class Claim:
    """A ResourceClaim."""

    name: str
    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...] = ()
    config: tuple[JsonObject, ...] = ()


@dataclass(frozen=True)
class DeviceClass:
    """A DeviceClass."""

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[JsonObject, ...] = ()


def read_class(body: JsonObject) -> DeviceClass:
    """Parses a DeviceClass."""
    spec = body.get("spec") or {}
    return DeviceClass(
        body["metadata"]["name"],
        _selectors(spec),
        tuple(spec.get("config") or ()),
    )


def read_claim(body: JsonObject) -> Claim:
    """Parses a ResourceClaim. Raises ValueError, QuantityError, KeyError."""
    devices = body["spec"].get("devices") or {}
    return Claim(
        body["metadata"]["name"],
        tuple(_request(request) for request in devices.get("requests") or ()),
        tuple(_constraint(constraint) for constraint in devices.get("constraints") or ()),
        tuple(devices.get("config") or ()),
    )


def _request(body: JsonObject) -> Request:
    name = body["name"]
    if body.get("exactly"):
        return Request(name, (_wanted(name, body["exactly"]),))
    return Request(name, tuple(_wanted(f"{name}/{way['name']}", way) for way in body.get("firstAvailable") or ()))


def _wanted(name: str, body: JsonObject) -> Wanted:
    if body.get("adminAccess"):
        raise ValueError(f"request {name}: the sandbox does not support adminAccess")
    texts = (body.get("capacity") or {}).get("requests") or {}
    return Wanted(
        name,
        body["deviceClassName"],
        _selectors(body),
        ALL if body.get("allocationMode") == "All" else body.get("count", 1),
        tuple(body.get("tolerations") or ()),
        {key: Quantity.parse(text) for key, text in texts.items()},
        {key: str(text) for key, text in texts.items()},
    )


def _selectors(body: JsonObject) -> tuple[str, ...]:
    return tuple(selector["cel"]["expression"] for selector in body.get("selectors") or () if "cel" in selector)


def _constraint(body: JsonObject) -> Constraint:
    distinct = "distinctAttribute" in body
    return Constraint(
        body["distinctAttribute" if distinct else "matchAttribute"], distinct, frozenset(body.get("requests") or ())
    )

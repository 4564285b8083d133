"""Computes what pods request of a node, as scheduler and kubelet count it, and the quality of service that follows."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, Literal

from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.resources import JsonObject

Amounts = Mapping[str, Fraction]  # by resource name
QualityOfService = Literal["Guaranteed", "Burstable", "BestEffort"]

HUGEPAGES: Final = "hugepages-"  # with the size of a page: a resource name
ZERO: Final = Fraction(0)


def amount(quantity: str) -> Fraction:
    """Returns a quantity as a number."""
    return Quantity.parse(quantity).number


def amounts(quantities: Mapping[str, str] | None) -> dict[str, Fraction]:
    """Returns quantities as numbers."""
    return {name: amount(text) for name, text in (quantities or {}).items()}


def requests_of(container: JsonObject) -> dict[str, Fraction]:
    """Returns what a container, or a pod's spec at the level of the pod, requests; by default, that is its limits."""
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def limits_of(container: JsonObject) -> dict[str, Fraction]:
    """Returns the limits of a container, or of a pod's spec at the level of the pod."""
    return amounts((container.get("resources") or {}).get("limits"))


def requested(pod: JsonObject) -> dict[str, Fraction]:
    """Returns the resources that a pod requests: those of its containers, or of an init container if higher; what its
    spec requests at the level of the pod counts instead."""
    spec = pod["spec"]
    return {**_peak(spec, requests_of), **requests_of(spec)}


def limit_of(pod: JsonObject, resource: str) -> Fraction | None:
    """Returns the limit of a pod's containers together; None if one of them has none, and the pod neither."""
    spec = pod["spec"]
    own = limits_of(spec).get(resource)
    if own is not None or any(resource not in limits_of(container) for container in containers_of(spec)):
        return own
    return _peak(spec, limits_of).get(resource)


def quality_of_service(spec: JsonObject) -> QualityOfService:
    """Returns the class of a pod, by the amounts of CPU and memory; those at the level of the pod decide, if any."""
    levels = [spec] if spec.get("resources") else containers_of(spec)
    pairs = [
        (requests_of(level).get(name), limits_of(level).get(name)) for level in levels for name in ("cpu", "memory")
    ]
    if not any(request or limit for request, limit in pairs):
        return "BestEffort"
    guaranteed = all(request and limit and request == limit for request, limit in pairs)
    return "Guaranteed" if guaranteed else "Burstable"


def total(*parts: Amounts) -> dict[str, Fraction]:
    """Adds amounts."""
    found: dict[str, Fraction] = {}
    for part in parts:
        for name, number in part.items():
            found[name] = found.get(name, ZERO) + number
    return found


def containers_of(spec: JsonObject) -> list[JsonObject]:
    """Returns all containers of a pod's spec; the first ones are the init containers."""
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _peak(spec: JsonObject, figures: Callable[[JsonObject], Amounts]) -> dict[str, Fraction]:
    """Returns the largest sum of these figures of containers that run at the same time."""
    peak, lasting = dict[str, Fraction](), dict[str, Fraction]()  # sidecars run together with all later containers
    init = len(spec.get("initContainers") or ())
    for number, container in enumerate(containers_of(spec)):
        together = total(lasting, figures(container))
        peak = {name: max(peak.get(name, ZERO), together.get(name, ZERO)) for name in {*peak, *together}}
        if number >= init or container.get("restartPolicy") == "Always":
            lasting = together
    return peak

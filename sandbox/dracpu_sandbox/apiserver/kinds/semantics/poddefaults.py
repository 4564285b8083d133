"""Defaults of pods, limited to the fields that the sandbox or its users read."""

from fractions import Fraction
from typing import Final

from dracpu_sandbox.apiserver.kinds.kind import JsonObject
from dracpu_sandbox.cel.quantity import Quantity

CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_SPEC: Final[JsonObject] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "priority": 0,
}
_TOLERATED_SECONDS: Final = 300  # as the admission plugin DefaultTolerationSeconds sets them
_TOLERATED_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def pod_with_defaults(pod: JsonObject) -> JsonObject:
    """Returns a pod with the fields that the API server fills in."""
    spec: JsonObject = {**_SPEC, **(pod.get("spec") or {})}
    for group in CONTAINERS:
        if group in spec:
            spec[group] = [_container(container) for container in spec[group]]
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    status = {"phase": "Pending", **(pod.get("status") or {})}
    if "qosClass" not in status:
        status["qosClass"] = quality_of_service([*spec.get("initContainers", ()), *spec.get("containers", ())])
    return {**pod, "spec": spec, "status": status}


def _tolerations(given: list[JsonObject]) -> list[JsonObject]:
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_SECONDS}
        for key in _TOLERATED_TAINTS
        if not any(old.get("key") in {None, "", key} and old.get("effect") in {None, "", "NoExecute"} for old in given)
    ]
    return [*given, *added]


def _container(container: JsonObject) -> JsonObject:
    """Returns a container with resources, whose requests default to their limits."""
    resources: JsonObject = container.get("resources") or {}
    if limits := resources.get("limits"):
        resources = {**resources, "requests": {**limits, **(resources.get("requests") or {})}}
    return {**container, "resources": resources}


def quality_of_service(containers: list[JsonObject]) -> str:
    """Returns Guaranteed, Burstable or BestEffort, by the amounts of CPU and memory, which are compared as numbers."""
    amounts = []
    for container in containers:
        resources = container.get("resources") or {}
        for name in ("cpu", "memory"):
            limit = (resources.get("limits") or {}).get(name)
            amounts.append(((resources.get("requests") or {}).get(name, limit), limit))
    if not any(request or limit for request, limit in amounts):
        return "BestEffort"
    guaranteed = all(request and limit and amount(request) == amount(limit) for request, limit in amounts)
    return "Guaranteed" if guaranteed else "Burstable"


def amount(quantity: str) -> Fraction:
    """Returns a quantity as a number."""
    return Quantity.parse(quantity).number

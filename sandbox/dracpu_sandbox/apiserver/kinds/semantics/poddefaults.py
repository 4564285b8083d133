"""What the API server fills in of a pod, as far as anything in the sandbox or a reader of pods looks at it."""

from fractions import Fraction
from typing import Final

from dracpu_sandbox.apiserver.kinds.model import JsonObject
from dracpu_sandbox.cel.quantity import Quantity

CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_SPEC: Final[JsonObject] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "priority": 0,
}
_STAYS: Final = 300  # seconds that a pod stays on a node in trouble, by the admission plugin that adds tolerations
_TROUBLES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def pod_with_defaults(pod: JsonObject) -> JsonObject:
    """A pod with what the API server fills in."""
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
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _STAYS}
        for key in _TROUBLES
        if not any(one.get("key") in {None, "", key} and one.get("effect") in {None, "", "NoExecute"} for one in given)
    ]
    return [*given, *added]


def _container(container: JsonObject) -> JsonObject:
    """A container with resources; one that has only a limit requests as much."""
    resources: JsonObject = container.get("resources") or {}
    if limits := resources.get("limits"):
        resources = {**resources, "requests": {**limits, **(resources.get("requests") or {})}}
    return {**container, "resources": resources}


def quality_of_service(containers: list[JsonObject]) -> str:
    """Guaranteed, Burstable or BestEffort: by CPU and memory alone, whose amounts are compared as numbers."""
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
    """A quantity as a number."""
    return Quantity.parse(quantity).number

"""Defaults of pods, limited to the fields that the sandbox or its users read."""

from typing import Final

from dracpu_sandbox.amounts import quality_of_service
from dracpu_sandbox.apiserver.kinds.kind import JsonObject

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
        status["qosClass"] = quality_of_service(spec)
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

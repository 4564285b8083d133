"""What the API server fills in of a pod."""

import re
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.model import JsonObject
from dracpu_sandbox.apiserver.kinds.semantics import nulls
from dracpu_sandbox.apiserver.kinds.semantics.resources import quality_of_service

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_FILES: Final = 0o644
_WAITED: Final = 300  # seconds that a pod stays on a node in trouble, by the admission plugin that adds tolerations
_TROUBLES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def pod_with_defaults(pod: JsonObject) -> JsonObject:
    """A pod with what the API server fills in."""
    spec: JsonObject = pod.get("spec") or {}
    filled = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        **spec,
    }
    for group in ("containers", "initContainers", "ephemeralContainers"):
        if group in spec:
            filled[group] = [_container(one) for one in spec[group]]
    if "volumes" in spec:
        filled["volumes"] = [_volume(one) for one in spec["volumes"]]
    filled["tolerations"] = _tolerations(spec.get("tolerations") or [])
    status = {"phase": "Pending", **(pod.get("status") or {})}
    if "qosClass" not in status:
        containers = [*(filled.get("initContainers") or ()), *(filled.get("containers") or ())]
        status["qosClass"] = quality_of_service(containers)
    return {**pod, "spec": filled, "status": nulls.with_times(status, nulls.POD_CONDITION)}


def _tolerations(given: list[JsonObject]) -> list[JsonObject]:
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _WAITED}
        for key in _TROUBLES
        if not any(one.get("key") in {None, "", key} and one.get("effect") in {None, "", "NoExecute"} for one in given)
    ]
    return [*given, *added]


def _container(container: JsonObject) -> JsonObject:
    filled = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": _pull_policy(container.get("image") or ""),
        **container,
    }
    filled["resources"] = _resources(filled["resources"])
    if "ports" in container:
        filled["ports"] = [{"protocol": "TCP", **one} for one in container["ports"]]
    if "env" in container:
        filled["env"] = [_variable(one) for one in container["env"]]
    for name in _PROBES:
        if name in container:
            filled[name] = _probe(container[name])
    return filled


def _pull_policy(image: str) -> str:
    last = image.rpartition("/")[2]
    tagged = re.search(r"[:@](.+)$", last)
    return "Always" if tagged is None or tagged[1] == "latest" else "IfNotPresent"


def _resources(resources: JsonObject) -> JsonObject:
    """Who tells only a limit asks for as much."""
    limits = resources.get("limits") or {}
    return {**resources, "requests": {**limits, **(resources.get("requests") or {})}} if limits else resources


def _variable(variable: JsonObject) -> JsonObject:
    source: JsonObject = variable.get("valueFrom") or {}
    if "fieldRef" not in source:
        return variable
    return {**variable, "valueFrom": {**source, "fieldRef": {"apiVersion": "v1", **source["fieldRef"]}}}


def _probe(probe: JsonObject) -> JsonObject:
    filled: JsonObject = {**_PROBE, **probe}
    if "httpGet" in probe:
        filled["httpGet"] = {"path": "/", "scheme": "HTTP", **probe["httpGet"]}
    return filled


def _volume(volume: dict[str, Any]) -> JsonObject:
    if volume.keys() == {"name"}:
        return {**volume, "emptyDir": {}}
    return {
        name: {"defaultMode": _FILES, **value} if name in {"configMap", "downwardAPI", "projected", "secret"} else value
        for name, value in volume.items()
    }

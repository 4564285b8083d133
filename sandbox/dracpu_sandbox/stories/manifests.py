"""Builds the objects that stories create."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dracpu_api.cpuset import CpuSet
from dracpu_api.names import CAPACITY_CPU, DRIVER
from dracpu_sandbox.node.pods import HOLD_ANNOTATION
from dracpu_sandbox.resources import CLAIM_TEMPLATES, CLAIMS, CONFIGS, JsonObject

NAMESPACE: Final = "default"
CONTAINER: Final = "main"

_CLAIM: Final = "cpus"
_IMAGE: Final = "busybox:1.37"

Containers = Mapping[str, Sequence[str]]  # container -> the claims that it uses: "claim", or "claim/request"


def cpus(amount: int) -> JsonObject:
    """Returns a request for a number of CPUs of one device, for grouped mode."""
    return {"deviceClassName": DRIVER, "capacity": {"requests": {CAPACITY_CPU: str(amount)}}}


def devices(count: int) -> JsonObject:
    """Returns a request for a number of devices, for individual mode."""
    return {"deviceClassName": DRIVER, "count": count}


def on_numa_node(number: int) -> JsonObject:
    """Returns the part of a request that selects the devices of a NUMA node."""
    expression = f'device.attributes["resource.kubernetes.io"].numaNode == {number}'
    return {"selectors": [{"cel": {"expression": expression}}]}


def claim_spec(requests: Mapping[str, JsonObject]) -> JsonObject:
    """Returns the spec of a claim with these requests."""
    return {"devices": {"requests": [{"name": name, "exactly": request} for name, request in requests.items()]}}


def claim(name: str, requests: Mapping[str, JsonObject]) -> JsonObject:
    """Returns a claim that pods can share."""
    return {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": claim_spec(requests),
    }


def claim_template(name: str, request: JsonObject) -> JsonObject:
    """Returns a template for claims with one request."""
    return {
        "apiVersion": CLAIM_TEMPLATES.api_version,
        "kind": CLAIM_TEMPLATES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": claim_spec({_CLAIM: request})},
    }


def config(name: str, selected: Mapping[str, str], spec: Mapping[str, Any]) -> JsonObject:
    """Returns a CpuDriverConfig for the nodes with these labels, with a higher priority than the default one."""
    return {
        "apiVersion": CONFIGS.api_version,
        "kind": CONFIGS.kind,
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"matchLabels": dict(selected)},
            "priority": 10,
            "rollout": {"settleSeconds": 1},
            **spec,
        },
    }


def pod(
    name: str,
    containers: Containers,
    *,
    init: Containers | None = None,
    template: str = "",
    node: str = "",
    environment: Mapping[str, str] | None = None,
    held: bool = False,
) -> JsonObject:
    """Returns a pod whose containers run until they are stopped, and whose init containers exit at once.

    With a template, every container uses a claim made from it. The kubelet does not start a held pod.
    """
    used = {
        reference.partition("/")[0] for uses in [*containers.values(), *(init or {}).values()] for reference in uses
    }
    entries = [{"name": claim, "resourceClaimName": claim} for claim in sorted(used)]
    if template:
        entries = [{"name": _CLAIM, "resourceClaimTemplateName": template}]
        containers = {container: [_CLAIM] for container in containers}
    spec: JsonObject = {
        "containers": [_container(item, uses, ["sleep", "infinity"]) for item, uses in containers.items()],
        "initContainers": [_container(item, uses, ["true"]) for item, uses in (init or {}).items()],
        "resourceClaims": entries,
        "terminationGracePeriodSeconds": 0,
    }
    for container in spec["containers"]:
        container["env"] = [{"name": key, "value": value} for key, value in (environment or {}).items()]
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    metadata: JsonObject = {"name": name, "namespace": NAMESPACE}
    if held:
        metadata["annotations"] = {HOLD_ANNOTATION: ""}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(name: str, uses: Sequence[str], command: list[str]) -> JsonObject:
    references = [dict(zip(("name", "request"), reference.split("/"), strict=False)) for reference in uses]
    return {"name": name, "image": _IMAGE, "command": command, "resources": {"claims": references}}


def single_devices(cpus: CpuSet) -> dict[str, int]:
    """Returns the devices of these CPUs in individual mode, each with its number of CPUs."""
    return {f"cpudev{cpu:03d}": 1 for cpu in cpus}

"""Builds the objects of Dynamic Resource Allocation from the few fields that a test needs."""

from collections.abc import Iterable, Sequence
from typing import Any

from dracpu_sandbox.resources import JsonObject

NUMA = "resource.kubernetes.io/numaNode"
CPU = "dra.cpu/cpu"


def grouped(name: str, cpus: int, policy: JsonObject | None = None, **attributes: int) -> JsonObject:
    """Builds a grouped device, which several claims can use; its capacity is a number of CPUs."""
    capacity: JsonObject = {"value": str(cpus)} | ({"requestPolicy": policy} if policy else {})
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "attributes": {key: {"int": value} for key, value in attributes.items()},
        "capacity": {CPU: capacity},
    }


def single(number: int, numa: int = 0, **more: Any) -> JsonObject:
    """Builds an individual device, which is one CPU."""
    attributes = {NUMA: {"int": numa}, "dra.cpu/cpuID": {"int": number}}
    return {"name": f"cpudev{number:03}", "attributes": attributes, **more}


def slice_of(
    node: str,
    devices: Sequence[JsonObject],
    *,
    name: str = "",
    pool: str = "",
    driver: str = "dra.cpu",
    generation: int = 1,
    slices: int = 1,
    **more: Any,
) -> JsonObject:
    """Builds a ResourceSlice of a node."""
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": slices},
        "devices": list(devices),
        **more,
    }
    metadata = {"name": name or f"{driver}-{node}"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def device_class(name: str = "dra.cpu", *, driver: str = "dra.cpu", **spec: Any) -> JsonObject:
    """Builds a DeviceClass that selects all devices of a driver."""
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def request(name: str = "main", cpus: int | str | None = None, *, cel: str = "", **exactly: Any) -> JsonObject:
    """Builds a request for an amount of CPUs, or for a count of devices."""
    body: JsonObject = {"deviceClassName": "dra.cpu", **exactly}
    if cpus is not None:
        body["capacity"] = {"requests": {CPU: str(cpus)}}
    if cel:
        body["selectors"] = [{"cel": {"expression": cel}}]
    return {"name": name, "exactly": body}


def claim_spec(*requests: JsonObject, **devices: Any) -> JsonObject:
    """Builds the spec of a ResourceClaim."""
    return {"devices": {"requests": list(requests), **devices}}


def claim(name: str, *requests: JsonObject, namespace: str = "default", **devices: Any) -> JsonObject:
    """Builds a ResourceClaim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"},
        "spec": claim_spec(*requests, **devices),
    }


def template(name: str, *requests: JsonObject, namespace: str = "default") -> JsonObject:
    """Builds a ResourceClaimTemplate."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": claim_spec(*requests)},
    }


def node(name: str, *, cpus: int = 64, labels: JsonObject | None = None, **spec: Any) -> JsonObject:
    """Builds a Node that is Ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": str(cpus), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(name: str, *claims: str, templates: Iterable[str] = (), namespace: str = "default", **spec: Any) -> JsonObject:
    """Builds a Pod that uses existing claims by their names, and claims made from templates."""
    entries = [{"name": name, "resourceClaimName": name} for name in claims]
    entries += [{"name": name, "resourceClaimTemplateName": name} for name in templates]
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"claims": [{"name": entry["name"]} for entry in entries]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"},
        "spec": {"containers": [container], "resourceClaims": entries, **spec},
    }

"""Builds the objects that tests apply, and fills in the fields that are equal in all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dracpu_api.names import CAPACITY_CPU, DRIVER

Object = dict[str, Any]

IMAGE: Final = "localhost/busybox:lab"

# The first line of a container's log shows the CPUs that it could use at its start, before any update could move it.
ALLOWED_AT_START: Final = "grep Cpus_allowed_list /proc/self/status"
SLEEP: Final = f"{ALLOWED_AT_START}; exec sleep 2147483647"
RUN_UNTIL_CRASH_FILE: Final = f"{ALLOWED_AT_START}; until [ -f /tmp/crash ]; do sleep 0.2; done; exit 1"


def container(name: str, claims: Sequence[str] = (), script: str = SLEEP) -> Object:
    """Builds a container that uses claims of its pod: each `claim`, or `claim/request` for one request of a claim."""
    references = [dict(zip(("name", "request"), claim.split("/"), strict=False)) for claim in claims]
    fields: Object = {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
    }
    return {**fields, "resources": {"claims": references}} if references else fields


def pod(
    name: str,
    *containers: Object,
    claims: Mapping[str, str] | None = None,
    init: Sequence[Object] = (),
    restart: str = "Always",
) -> Object:
    """Builds a pod; `claims` has the name of a ResourceClaim for each name that the pod's containers use."""
    spec: Object = {
        "terminationGracePeriodSeconds": 1,  # busybox's shell as process 1 ignores SIGTERM
        "restartPolicy": restart,
        "containers": list(containers) or [container("main", list(claims or ()))],
        "resourceClaims": [{"name": alias, "resourceClaimName": claim} for alias, claim in (claims or {}).items()],
    }
    if init:
        spec["initContainers"] = list(init)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def claim(name: str, *requests: Object) -> Object:
    """Builds a ResourceClaim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(requests)}},
    }


def template(claim: Object) -> Object:
    """Builds the ResourceClaimTemplate from which Kubernetes makes claims like this one."""
    return {**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}


def cpus(amount: int, request: str = "cpus", selector: str = "") -> Object:
    """Builds a request for an amount of a grouped device's CPUs."""
    return _request(request, {"capacity": {"requests": {CAPACITY_CPU: str(amount)}}}, selector)


def devices(count: int, request: str = "cpus", selector: str = "") -> Object:
    """Builds a request for a number of individual devices."""
    return _request(request, {"count": count}, selector)


def on_numa_node(numa: int) -> str:
    """Returns the CEL selector of the devices on a NUMA node."""
    return f'device.attributes["resource.kubernetes.io"].numaNode == {numa}'


def _request(name: str, asked: Object, selector: str) -> Object:
    exactly: Object = {"deviceClassName": DRIVER, **asked}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": exactly}

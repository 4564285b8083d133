"""The objects that stories make."""

from collections.abc import Mapping
from typing import Final

from dracpu_api.names import CAPACITY_CPU, DRIVER
from dracpu_sandbox.resources import CLAIM_TEMPLATES, JsonObject

NAMESPACE: Final = "default"
CONTAINER: Final = "main"

_CLAIM: Final = "cpus"
_IMAGE: Final = "busybox:1.37"


def cpus(amount: int) -> JsonObject:
    """A request for so many CPUs of one device, as in grouped mode."""
    return {"deviceClassName": DRIVER, "capacity": {"requests": {CAPACITY_CPU: str(amount)}}}


def devices(count: int) -> JsonObject:
    """A request for so many devices, as in individual mode."""
    return {"deviceClassName": DRIVER, "count": count}


def claim_template(name: str, request: JsonObject) -> JsonObject:
    """A template for claims with one request."""
    wanted = {"requests": [{"name": _CLAIM, "exactly": request}]}
    return {
        "apiVersion": CLAIM_TEMPLATES.api_version,
        "kind": CLAIM_TEMPLATES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": {"devices": wanted}},
    }


def pod(name: str, *, template: str = "", node: str = "", environment: Mapping[str, str] | None = None) -> JsonObject:
    """A pod of one container that runs for ever; with a template its container uses a claim made from it."""
    container: JsonObject = {"name": CONTAINER, "image": _IMAGE, "command": ["sleep", "infinity"]}
    spec: JsonObject = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if template:
        spec["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": template}]
        container["resources"] = {"claims": [{"name": _CLAIM}]}
    if environment:
        container["env"] = [{"name": key, "value": value} for key, value in environment.items()]
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}

"""The API resources that the simulated parts of a cluster use."""

from typing import Any, Final

from dracpu_api import resources as shared

JsonObject = dict[str, Any]
Key = tuple[str, str]  # namespace, name
Resource = shared.Resource

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"  # marks a pod that only shows what its kubelet runs

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace")
NODES: Final = shared.NODES
PODS: Final = shared.PODS
DAEMON_SETS: Final = shared.DAEMON_SETS
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
CRDS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass")
CLAIMS: Final = shared.RESOURCE_CLAIMS
CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)
SLICES: Final = shared.RESOURCE_SLICES
CONFIGS: Final = shared.CONFIGS
CPU_NODES: Final = shared.CPU_NODES


def key_of(item: JsonObject) -> Key:
    """Returns the namespace and the name of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def conditions_of(item: JsonObject | None) -> dict[str, JsonObject]:
    """Returns the conditions in an object's status, by type."""
    return {found["type"]: found for found in ((item or {}).get("status") or {}).get("conditions") or ()}

"""The resources that the simulated parts of a cluster use."""

from dataclasses import dataclass
from typing import Any, Final

JsonObject = dict[str, Any]
Key = tuple[str, str]  # namespace, name

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"  # of a pod that only shows what its kubelet runs


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object as it stands in a URL."""

    group: str  # "" is the core group
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL's path; without a namespace it is that of all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(part for part in (root, inside, self.plural, name, subresource) if part)


def key_of(item: JsonObject) -> Key:
    """The namespace and the name of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def conditions_of(item: JsonObject | None) -> dict[str, JsonObject]:
    """The conditions in an object's status, by type."""
    return {found["type"]: found for found in ((item or {}).get("status") or {}).get("conditions") or ()}


NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)
SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
CONFIGS: Final = Resource("dra.cpu", "v1alpha1", "cpudriverconfigs", "CpuDriverConfig", namespaced=False)
CPU_NODES: Final = Resource("dra.cpu", "v1alpha1", "cpunodes", "CpuNode", namespaced=False)

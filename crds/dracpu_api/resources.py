"""The kinds of Kubernetes objects that the operator and the agent read or write, and what all kinds share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from dracpu_api.names import API_GROUP, API_VERSION

Json = Mapping[str, Any]  # a JSON object that is only read
JsonObject = dict[str, Any]  # one that may be changed


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object in one version of its API."""

    group: str  # "" for the core API
    version: str
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """The apiVersion of an object: "group/version", or "v1" in the core API."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """The URL path of an object or of its subresource; without a name, of the collection.

        The collection of a namespaced kind without a namespace has the objects of all namespaces.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, got {namespace!r}")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.plural} are namespaced: the path of {name!r} needs a namespace")
        parts = ["apis", self.group] if self.group else ["api"]
        parts += [self.version, *(["namespaces", namespace] if namespace else []), self.plural, name, subresource]
        return "".join(f"/{quote(part, safe='')}" for part in parts if part)


NODES: Final = Resource("", "v1", "nodes", "Node")
PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True)
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
CONFIGS: Final = Resource(API_GROUP, API_VERSION, "cpudriverconfigs", "CpuDriverConfig")
CPU_NODES: Final = Resource(API_GROUP, API_VERSION, "cpunodes", "CpuNode")
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)


def resource_version(entity: Json) -> int:
    """The resourceVersion of an object or a list. Versions within one kind of objects may be compared: documented since
    Kubernetes 1.35, true for every version that stores in etcd."""
    return int(entity["metadata"]["resourceVersion"])

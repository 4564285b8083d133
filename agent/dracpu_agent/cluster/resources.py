"""The kinds of objects that the agent touches, and where the API server keeps them."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from dracpu_api import names

JsonObject = dict[str, Any]


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
        """As it stands in objects: "group/version", or "v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """The URL path of the collection, an object or its subresource."""
        if self.namespaced != bool(namespace):
            raise ValueError(f"{self.plural} are {'' if self.namespaced else 'not '}in namespaces, got {namespace!r}")
        parts = ["apis", self.group] if self.group else ["api"]
        parts += [self.version, *(["namespaces", namespace] if namespace else []), self.plural, name, subresource]
        return "".join(f"/{quote(part, safe='')}" for part in parts if part)


NODES: Final = Resource("", "v1", "nodes", "Node")
RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
CPU_NODES: Final = Resource(names.API_GROUP, names.API_VERSION, "cpunodes", "CpuNode")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)


def revision_of(meta_owner: JsonObject) -> int:
    """The resourceVersion as a number. Those of one kind of object may be compared (documented since Kubernetes 1.35,
    true for every version that stores in etcd)."""
    return int(meta_owner["metadata"]["resourceVersion"])

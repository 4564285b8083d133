"""What the fake API server says that it serves, for clients that ask before they watch."""

from typing import Any, Final

_SERVED: Final = {
    ("", "v1"): {"nodes": "Node", "namespaces": "Namespace", "pods": "Pod"},
    ("apiextensions.k8s.io", "v1"): {"customresourcedefinitions": "CustomResourceDefinition"},
    ("dra.cpu", "v1alpha1"): {"cpudriverconfigs": "CpuDriverConfig", "cpunodes": "CpuNode"},
    ("events.k8s.io", "v1"): {"events": "Event"},
    ("resource.k8s.io", "v1"): {"resourceclaims": "ResourceClaim", "resourceslices": "ResourceSlice"},
}
_NAMESPACED: Final = {"events", "pods", "resourceclaims"}
_VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]


def discover(path: str) -> dict[str, Any] | None:
    """The answer to a discovery request; None when the path is none."""
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {"kind": "APIGroupList", "groups": [_group(group, version) for group, version in _SERVED if group]}
    for (group, version), kinds in _SERVED.items():
        if path == (f"/apis/{group}/{version}" if group else f"/api/{version}"):
            return {"kind": "APIResourceList", "resources": [_resource(*kind) for kind in kinds.items()]}
    return None


def _group(group: str, version: str) -> dict[str, Any]:
    served = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


def _resource(plural: str, kind: str) -> dict[str, Any]:
    return {
        "name": plural,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": plural in _NAMESPACED,
        "verbs": _VERBS,
    }

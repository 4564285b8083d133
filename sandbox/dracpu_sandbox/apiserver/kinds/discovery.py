"""Discovery: describes the groups, versions and resources that are served.

Aggregated discovery is not served; clients that request it fall back to these documents.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.kind import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.kinds.schemas import KUBERNETES

VERSION: Final[JsonObject] = {
    "major": "1",
    "minor": KUBERNETES.split(".")[1],
    "gitVersion": f"{KUBERNETES}+dracpu.sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}
_READ_WRITE: Final = ("get", "patch", "update")
# subresource -> its kind ("": that of the object), its verbs
_SUBRESOURCES: Final[dict[str, tuple[str, Sequence[str]]]] = {
    "status": ("", _READ_WRITE),
    "binding": ("Binding", ("create",)),
    "log": ("", ("get",)),
    "resize": ("", _READ_WRITE),
}


def discover(registry: Registry, path: str, without: Collection[str] = ()) -> JsonObject | None:
    """Returns the answer to a discovery request, without some groups; None when nothing is served at the path."""
    kinds = [kind for kind in registry.all() if kind.group not in without]
    match path.strip("/").split("/"):
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            names = sorted({kind.group for kind in kinds if kind.group})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name, kinds) for name in names]}
        case ["apis", name] if any(kind.group == name for kind in kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, kinds)}
        case ["api", _] | ["apis", _, _] as parts:
            group, version = parts[1] if len(parts) > 2 else "", parts[-1]
            return _resources([kind for kind in kinds if (kind.group, kind.version) == (group, version)])
    return None


def _group(name: str, kinds: Iterable[Kind]) -> JsonObject:
    versions = sorted({kind.version for kind in kinds if kind.group == name})
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _resources(kinds: Sequence[Kind]) -> JsonObject | None:
    if not kinds:
        return None
    resources = [resource for kind in kinds for resource in _with_subresources(kind)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kinds[0].api_version, "resources": resources}


def _with_subresources(kind: Kind) -> Iterable[JsonObject]:
    names: dict[str, Any] = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    yield {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
        **{key: value for key, value in names.items() if value},
    }
    for name in kind.subresources:
        other, verbs = _SUBRESOURCES[name]
        yield {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": other or kind.kind,
            "verbs": list(verbs),
        }

"""What clients ask before they ask for objects: which groups, versions and resources there are."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry

JSON: Final = "application/json"
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSION: Final[JsonObject] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+dracpu.sandbox",
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
    "scale": ("Scale", _READ_WRITE),
    "binding": ("Binding", ("create",)),
    "finalize": ("", ("update",)),
    "log": ("", ("get",)),
}


def discover(registry: Registry, path: str, accept: str = "") -> tuple[JsonObject, str] | None:
    """The answer to a discovery request and its content type; None when the path is none."""
    parts = path.strip("/").split("/")
    match parts:
        case ["api" | "apis"] if _wants_aggregated(accept):
            grouped = parts == ["apis"]
            return _aggregated([kind for kind in registry.all() if bool(kind.group) == grouped]), AGGREGATED
        case ["version"]:
            body: JsonObject | None = VERSION
        case ["api"]:
            body = {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = _groups(kind for kind in registry.all() if kind.group)
            body = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group]:
            groups = _groups(kind for kind in registry.all() if kind.group == group)
            body = {"kind": "APIGroup", "apiVersion": "v1", **groups[0]} if groups else None
        case ["api", version]:
            body = _resources(registry, "", version)
        case ["apis", group, version]:
            body = _resources(registry, group, version)
        case _:
            body = None
    return None if body is None else (body, JSON)


def _wants_aggregated(accept: str) -> bool:
    """Whether the first of the accepted types that is known here is aggregated discovery."""
    for one in accept.split(","):
        kind, *parameters = (part.strip() for part in one.split(";"))
        if kind not in {JSON, "application/*", "*/*"}:
            continue
        wanted = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if wanted.get("g") == "apidiscovery.k8s.io" and wanted.get("v") == "v2":
            return True
        if "g" not in wanted:
            return False
    return False


def _groups(kinds: Iterable[Kind]) -> list[JsonObject]:
    groups = []
    for group, members in _by_group(kinds):
        served = [{"groupVersion": f"{group}/{version}", "version": version} for version in _versions(members)]
        groups.append({"name": group, "versions": served, "preferredVersion": served[0]})
    return groups


def _resources(registry: Registry, group: str, version: str) -> JsonObject | None:
    kinds = [kind for kind in registry.all() if (kind.group, kind.version) == (group, version)]
    if not kinds:
        return None
    resources = [one for kind in kinds for one in _with_subresources(kind)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kinds[0].api_version, "resources": resources}


def _with_subresources(kind: Kind) -> Iterable[JsonObject]:
    yield {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
        **_naming(kind),
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


def _aggregated(kinds: Iterable[Kind]) -> JsonObject:
    groups = []
    for group, members in _by_group(kinds):
        versions = [
            {"version": version, "resources": [_discovered(kind) for kind in members if kind.version == version]}
            for version in _versions(members)
        ]
        fresh = [{**version, "freshness": "Current"} for version in versions]
        groups.append({"metadata": {"name": group} if group else {}, "versions": fresh})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups}


def _discovered(kind: Kind) -> JsonObject:
    found: JsonObject = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind, ""),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
        **_naming(kind),
    }
    if kind.subresources:
        found["subresources"] = [
            {
                "subresource": name,
                "responseKind": _response_kind(kind, _SUBRESOURCES[name][0]),
                "verbs": list(_SUBRESOURCES[name][1]),
            }
            for name in kind.subresources
        ]
    return found


def _response_kind(kind: Kind, other: str) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": other or kind.kind}


def _naming(kind: Kind) -> dict[str, Any]:
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {key: value for key, value in names.items() if value}


def _by_group(kinds: Iterable[Kind]) -> list[tuple[str, list[Kind]]]:
    ordered = sorted(kinds, key=lambda kind: kind.group)
    return [(group, list(members)) for group, members in groupby(ordered, key=lambda kind: kind.group)]


def _versions(kinds: Sequence[Kind]) -> list[str]:
    """The versions of a group, the preferred one first."""
    return sorted({kind.version for kind in kinds}, key=version_order)


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sorts v2 before v1 before v1beta1 before v1alpha1 before any other name."""
    digits, _, rest = version.removeprefix("v").partition("alpha")
    stability = 2 if rest else 0
    if not rest:
        digits, _, rest = digits.partition("beta")
        stability = 1 if rest else 0
    if not version.startswith("v") or not digits.isdigit() or (rest and not rest.isdigit()):
        return 3, 0, 0, version
    return stability, -int(digits), -int(rest or 0), version

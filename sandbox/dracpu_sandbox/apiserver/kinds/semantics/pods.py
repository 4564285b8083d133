"""Rules for pods, above all for their use of claims."""

from collections.abc import Iterator
from typing import Final

from dracpu_sandbox.amounts import amount, quality_of_service
from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.checking import duplicates
from dracpu_sandbox.apiserver.kinds.kind import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import names
from dracpu_sandbox.apiserver.kinds.semantics.poddefaults import CONTAINERS

_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_RESIZABLE: Final = ("cpu", "memory")
_CHANGEABLE: Final = ("activeDeadlineSeconds", "schedulingGates", "tolerations")


def check_pod(pod: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """Yields the problems of a pod."""
    spec = pod["spec"]
    if subresource == "resize" and old is not None:
        yield from _resized(spec, old["spec"])
    if subresource:
        return
    if old is not None:
        yield from _changes(spec, old["spec"])
        return
    claims = spec.get("resourceClaims") or []
    claim_names = [claim["name"] for claim in claims]
    yield from duplicates("spec.resourceClaims", claim_names)
    for number, claim in enumerate(claims):
        yield from _claim(claim, f"spec.resourceClaims[{number}]")
    if not spec.get("containers"):
        yield problems.required("spec.containers")
    volumes = {volume["name"] for volume in spec.get("volumes") or ()}
    known: list[str] = []
    for group in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(group) or ()):
            path = f"spec.{group}[{number}]"
            if container["name"] in known:
                yield problems.duplicate(f"{path}.name", container["name"])
            known.append(container["name"])
            yield from _container(container, path, volumes, claim_names)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield problems.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def _claim(claim: JsonObject, path: str) -> Iterator[Problem]:
    yield from names.label(f"{path}.name", claim["name"])
    given = [source for source in _SOURCES if claim.get(source)]
    if len(given) != 1:
        yield problems.invalid(path, claim, f"must have exactly one of {' and '.join(_SOURCES)}")
    for source in given:
        yield from names.subdomain(f"{path}.{source}", claim[source])


def _container(container: JsonObject, path: str, volumes: set[str], claims: list[str]) -> Iterator[Problem]:
    yield from names.label(f"{path}.name", container["name"])
    yield from _image(container, path)
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if mount["name"] not in volumes:
            yield problems.not_found(f"{path}.volumeMounts[{number}].name", mount["name"])
    resources = container["resources"]
    yield from _amounts(resources.get("limits") or {}, resources.get("requests") or {}, f"{path}.resources")
    yield from _used_claims(resources.get("claims") or [], f"{path}.resources", claims)


def _image(container: JsonObject, path: str) -> Iterator[Problem]:
    if not (container.get("image") or "").strip():
        yield problems.required(f"{path}.image")


def _amounts(limits: JsonObject, requests: JsonObject, path: str) -> Iterator[Problem]:
    for group, amounts in (("limits", limits), ("requests", requests)):
        for name, quantity in amounts.items():
            if amount(quantity) < 0:
                yield problems.invalid(f"{path}.{group}[{name}]", quantity, "must not be negative")
            if _is_whole(name) and amount(quantity).denominator != 1:
                yield problems.invalid(f"{path}.{group}[{name}]", quantity, "must be an integer")
    for name, quantity in requests.items():
        limit = limits.get(name)
        if limit is None:
            if _is_whole(name):
                yield problems.required(f"{path}.limits", f"there must be a limit for {name}")
        elif amount(quantity) > amount(limit):
            yield problems.invalid(f"{path}.requests", quantity, f"must be at most the {name} limit of {limit}")
        elif _is_whole(name) and amount(quantity) != amount(limit):
            yield problems.invalid(f"{path}.requests", quantity, f"must be equal to the {name} limit of {limit}")


def _is_whole(resource: str) -> bool:
    """Returns whether a resource consists of whole units that are not overcommitted, like devices and huge pages."""
    return "/" in resource or resource.startswith("hugepages-")


def _used_claims(used: list[JsonObject], path: str, claims: list[str]) -> Iterator[Problem]:
    """Checks that a container uses claims of its pod, and no claim or request twice."""
    for number, claim in enumerate(used):
        here, name = f"{path}.claims[{number}]", claim["name"]
        if claim.get("request"):
            yield from names.label(f"{here}.request", claim["request"])
        if any(other["name"] == name and _overlap(other, claim) for other in used[:number]):
            yield problems.duplicate(here, name)
        if name not in claims:
            yield problems.not_found(here, name, "must be the name of one of spec.resourceClaims")


def _overlap(claim: JsonObject, other: JsonObject) -> bool:
    first, second = claim.get("request"), other.get("request")
    return not first or not second or first == second


def _resized(spec: JsonObject, old: JsonObject) -> Iterator[Problem]:
    """Checks a resize: only CPU time and memory change, and the pod's quality of service stays."""
    if quality_of_service(spec) != quality_of_service(old):
        yield problems.invalid("metadata", "", "Pod QOS Class may not change as a result of resizing")
    for group in ("containers", "initContainers"):
        for number, (container, former) in enumerate(zip(spec.get(group) or (), old.get(group) or (), strict=True)):
            path, resources = f"spec.{group}[{number}].resources", container.get("resources") or {}
            yield from _amounts(resources.get("limits") or {}, resources.get("requests") or {}, path)
            if _unresizable(resources) != _unresizable(former.get("resources") or {}):
                yield problems.forbidden(path, "only cpu and memory resources are mutable")


def _unresizable(resources: JsonObject) -> JsonObject:
    return {
        "claims": resources.get("claims") or [],
        **{
            kind: {name: amount(text) for name, text in (resources.get(kind) or {}).items() if name not in _RESIZABLE}
            for kind in ("limits", "requests")
        },
    }


def _changes(spec: JsonObject, old: JsonObject) -> Iterator[Problem]:
    for group in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(group) or ()):
            yield from _image(container, f"spec.{group}[{number}]")
    lost = [given for given in old.get("tolerations") or () if given not in (spec.get("tolerations") or ())]
    gates = {gate["name"] for gate in old.get("schedulingGates") or ()}
    added = [gate for gate in spec.get("schedulingGates") or () if gate["name"] not in gates]
    if lost or added or _fixed(spec) != _fixed(old):
        detail = "only images, activeDeadlineSeconds, more tolerations and fewer schedulingGates may change"
        yield problems.forbidden("spec", detail)


def _fixed(spec: JsonObject) -> JsonObject:
    """Returns the part of a pod's spec that must not change."""
    kept = {name: value for name, value in spec.items() if name not in _CHANGEABLE}
    for group in CONTAINERS:
        if group in kept:
            kept[group] = [{**container, "image": ""} for container in kept[group]]
    return kept

"""Pods: what is filled in, and what a user of claims meets."""

from collections.abc import Iterator
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.model import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import names
from dracpu_sandbox.apiserver.kinds.semantics.resources import check_resources

_MUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_RESTARTS: Final = ("Always", "OnFailure", "Never")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_LAST_PORT: Final = 65535
_LONGEST_DEADLINE: Final = 2**31 - 1  # seconds
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_ONE_SOURCE: Final = ("resourceClaimName", "resourceClaimTemplateName")


def check_pod(pod: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a pod."""
    if subresource:
        return
    if old is not None:
        yield from _changes(pod["spec"], old["spec"])
        return
    spec = pod["spec"]
    claims = spec.get("resourceClaims") or []
    claim_names = [one.get("name", "") for one in claims]
    for number, claim in enumerate(claims):
        yield from _claim(claim, f"spec.resourceClaims[{number}]", claims[:number])
    volumes = {one.get("name") for one in spec.get("volumes") or ()}
    if not spec.get("containers"):
        yield problems.required("spec.containers")
    known: list[str] = []
    for group in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(group) or ()):
            path = f"spec.{group}[{number}]"
            yield from _container(container, path, known, volumes)
            used = (container.get("resources") or {}).get("claims") or []
            yield from _uses(used, f"{path}.resources", claim_names)
            known.append(container.get("name", ""))
    yield from _of_the_pod(spec, claim_names)


def _changes(spec: JsonObject, old: JsonObject) -> Iterator[Problem]:
    for group in ("containers", "initContainers"):
        containers = spec.get(group) or ()
        if len(containers) != len(old.get(group) or ()):
            yield problems.forbidden(f"spec.{group}", "pod updates may not add or remove containers")
            return
        for number, container in enumerate(containers):
            yield from _image(container, f"spec.{group}[{number}]")
    yield from _deadline(spec)
    if _fixed(spec, old) != _fixed(old, old):
        yield problems.forbidden("spec", _MUTABLE)


def _of_the_pod(spec: JsonObject, claim_names: list[str]) -> Iterator[Problem]:
    if spec["restartPolicy"] not in _RESTARTS:
        yield problems.unsupported("spec.restartPolicy", spec["restartPolicy"], _RESTARTS)
    yield from _deadline(spec)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield problems.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    for number, toleration in enumerate(spec.get("tolerations") or ()):
        if toleration.get("operator", "Equal") not in {"Equal", "Exists"}:
            path = f"spec.tolerations[{number}].operator"
            yield problems.unsupported(path, toleration["operator"], ("Equal", "Exists"))
    if (spec.get("resources") or {}).get("claims"):
        yield problems.forbidden("spec.resources.claims", "claims may not be set for Resources at pod-level")
        yield from _uses(spec["resources"]["claims"], "spec.resources", claim_names)
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    base = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    for number, term in enumerate(terms):
        for position, one in enumerate(term.get("matchExpressions") or ()):
            if one.get("operator") in {"In", "NotIn"} and not one.get("values"):
                path = f"{base}[{number}].matchExpressions[{position}].values"
                yield problems.required(path, "must be specified when `operator` is 'In' or 'NotIn'")


def _claim(claim: JsonObject, path: str, before: list[JsonObject]) -> Iterator[Problem]:
    name = claim.get("name", "")
    if not name:
        yield problems.required(f"{path}.name")
    elif any(one.get("name") == name for one in before):
        yield problems.duplicate(f"{path}.name", name)
    else:
        yield from names.label(f"{path}.name", name)
    given = [source for source in _ONE_SOURCE if claim.get(source)]
    told = {key[0].upper() + key[1:]: claim.get(key) for key in ("name", *_ONE_SOURCE)}
    if not given:
        detail = f"must specify one of: {', '.join(f'`{source}`' for source in _ONE_SOURCE)}"
        yield problems.invalid(path, told, detail)
    elif len(given) > 1:
        detail = f"at most one of {' or '.join(f'`{source}`' for source in _ONE_SOURCE)} may be specified"
        yield problems.invalid(path, told, detail)
    for source in given:
        yield from names.subdomain(f"{path}.{source}", claim[source])


def _container(container: JsonObject, path: str, known: list[str], volumes: set[Any]) -> Iterator[Problem]:
    name = container.get("name", "")
    if not name:
        yield problems.required(f"{path}.name")
    elif name in known:
        yield problems.duplicate(f"{path}.name", name)
    else:
        yield from names.label(f"{path}.name", name)
    yield from _image(container, path)
    for number, port in enumerate(container.get("ports") or ()):
        yield from _port(port, f"{path}.ports[{number}]")
    for number, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield problems.required(f"{path}.env[{number}].name")
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if not mount.get("name"):
            yield problems.required(f"{path}.volumeMounts[{number}].name")
        elif mount["name"] not in volumes:
            yield problems.not_found(f"{path}.volumeMounts[{number}].name", mount["name"])
        if not mount.get("mountPath"):
            yield problems.required(f"{path}.volumeMounts[{number}].mountPath")
    yield from check_resources(container.get("resources") or {}, f"{path}.resources")


def _image(container: JsonObject, path: str) -> Iterator[Problem]:
    if not (container.get("image") or "").strip():
        yield problems.required(f"{path}.image")


def _port(port: JsonObject, path: str) -> Iterator[Problem]:
    if not port.get("containerPort"):
        yield problems.required(f"{path}.containerPort")
    for name in ("containerPort", "hostPort"):
        if port.get(name) and not 0 < port[name] <= _LAST_PORT:
            yield problems.invalid(f"{path}.{name}", port[name], f"must be between 1 and {_LAST_PORT}, inclusive")
    if port["protocol"] not in _PROTOCOLS:
        yield problems.unsupported(f"{path}.protocol", port["protocol"], _PROTOCOLS)


def _deadline(spec: JsonObject) -> Iterator[Problem]:
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None and not 0 < seconds <= _LONGEST_DEADLINE:
        detail = f"must be between 1 and {_LONGEST_DEADLINE}, inclusive"
        yield problems.invalid("spec.activeDeadlineSeconds", seconds, detail)


def _uses(used: list[JsonObject], path: str, claims: list[str]) -> Iterator[Problem]:
    """The claims that a container uses are claims of its pod, each used once: whole, or by its requests."""
    for number, claim in enumerate(used):
        here, name = f"{path}.claims[{number}]", claim.get("name", "")
        if not name:
            yield problems.required(here)
            continue
        if claim.get("request"):
            yield from names.label(f"{here}.request", claim["request"])
        if any(one.get("name") == name and _overlap(one, claim) for one in used[:number]):
            yield problems.duplicate(here, name)
        if name not in claims:
            there = f": {', '.join(claims)}" if claims else " which is empty"
            yield problems.not_found(here, name, f"must be one of the names in pod.spec.resourceClaims{there}")


def _overlap(one: JsonObject, other: JsonObject) -> bool:
    first, second = one.get("request"), other.get("request")
    return not first or not second or first == second


def _fixed(spec: JsonObject, old: JsonObject) -> JsonObject:
    """The part of a pod's spec that must not change, given what it was."""
    kept = {
        name: value
        for name, value in spec.items()
        if name not in {"activeDeadlineSeconds", "schedulingGates", "tolerations"}
    }
    for group in _CONTAINERS:
        if group in kept:
            kept[group] = [{name: value for name, value in one.items() if name != "image"} for one in kept[group]]
    before = old.get("tolerations") or []
    kept["tolerations"] = [one for one in spec.get("tolerations") or () if one in before]
    gates = [one["name"] for one in spec.get("schedulingGates") or ()]
    kept["new gates"] = sorted(set(gates) - {one["name"] for one in old.get("schedulingGates") or ()})
    return kept

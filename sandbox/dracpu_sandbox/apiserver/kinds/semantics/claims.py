"""Rules and defaults of ResourceClaims, their templates and DeviceClasses."""

import uuid
from collections.abc import Iterator
from typing import Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.gates import Gates
from dracpu_sandbox.apiserver.kinds.kind import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import metadata, names, requests

_RESULTS: Final = 32
_CONSUMERS: Final = 256
_CONDITIONS: Final = 8
_IMMUTABLE: Final = "field is immutable"


def claim_with_defaults(claim: JsonObject) -> JsonObject:
    """Returns a claim with the fields that the API server fills in."""
    return {**claim, "spec": requests.with_defaults(claim.get("spec") or {}), "status": claim.get("status") or {}}


def gated_claim(claim: JsonObject, on: Gates) -> JsonObject:
    """Returns a claim without the fields whose feature gates are off."""
    return {**claim, "spec": requests.gated(claim["spec"], on)}


def check_claim(claim: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """Yields the problems of a claim."""
    if subresource == "status":
        yield from _status(claim, old or {})
    elif old is None:
        yield from requests.check(claim["spec"], "spec")
    elif claim["spec"] != old["spec"]:
        yield problems.invalid("spec", claim["spec"], _IMMUTABLE)


def _status(claim: JsonObject, old: JsonObject) -> Iterator[Problem]:
    status, before = claim["status"], (old.get("status") or {}).get("allocation")
    allocation, consumers = status.get("allocation"), status.get("reservedFor") or []
    yield from requests.limited("status.reservedFor", consumers, _CONSUMERS)
    if consumers and allocation is None:
        yield problems.forbidden("status.reservedFor", "must not be set before the claim is allocated")
    if before is not None and allocation is not None and allocation != before:
        yield problems.invalid("status.allocation", allocation, _IMMUTABLE)
    elif allocation is not None:
        yield from _allocation(allocation.get("devices") or {}, set(requests.request_names(claim["spec"])))
    yield from _device_statuses(status.get("devices") or [], allocation or {})


def _allocation(devices: JsonObject, known: set[str]) -> Iterator[Problem]:
    path = "status.allocation.devices"
    results = devices.get("results") or []
    yield from requests.limited(f"{path}.results", results, _RESULTS)
    for number, result in enumerate(results):
        yield from _result(result, f"{path}.results[{number}]", known)
    for number, config in enumerate(devices.get("config") or ()):
        here = f"{path}.config[{number}]"
        yield from requests.known_requests(config.get("requests") or [], f"{here}.requests", known)
        yield from requests.config(config, here)


def _result(result: JsonObject, path: str, known: set[str]) -> Iterator[Problem]:
    yield from requests.known_request(result["request"], f"{path}.request", known)
    yield from names.driver(f"{path}.driver", result["driver"])
    yield from names.label(f"{path}.device", result["device"])
    for part in result["pool"].split("/"):
        yield from names.subdomain(f"{path}.pool", part)
    yield from requests.tolerations(result.get("tolerations") or (), f"{path}.tolerations")
    try:
        uuid.UUID(result.get("shareID") or str(uuid.UUID(int=0)))
    except ValueError:
        yield problems.invalid(f"{path}.shareID", result["shareID"], "must be a UUID")


def _device_statuses(devices: list[JsonObject], allocation: JsonObject) -> Iterator[Problem]:
    allocated = [_identity(result) for result in (allocation.get("devices") or {}).get("results") or ()]
    for number, device in enumerate(devices):
        here = f"status.devices[{number}]"
        if _identity(device) not in allocated:
            yield problems.invalid(here, _identity(device), "must be an allocated device in the claim")
        yield from requests.limited_json(f"{here}.data", device.get("data"))
        yield from requests.limited(f"{here}.conditions", device.get("conditions") or [], _CONDITIONS)


def _identity(device: JsonObject) -> JsonObject:
    """Returns the fields that identify an allocated device."""
    return {name: device.get(name) or "" for name in ("driver", "pool", "device", "shareID")}


def template_with_defaults(template: JsonObject) -> JsonObject:
    """Returns a template with the fields that the API server fills in."""
    spec = template.get("spec") or {}
    return {**template, "spec": {**spec, "spec": requests.with_defaults(spec.get("spec") or {})}}


def gated_template(template: JsonObject, on: Gates) -> JsonObject:
    """Returns a template without the fields whose feature gates are off."""
    spec = template["spec"]
    return {**template, "spec": {**spec, "spec": requests.gated(spec["spec"], on)}}


def check_template(template: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """Yields the problems of a template."""
    spec = template["spec"]
    if old is not None:
        if spec != old["spec"]:
            yield problems.invalid("spec", spec, _IMMUTABLE)
        return
    inside: JsonObject = spec.get("metadata") or {}
    for name in inside.keys() - {"labels", "annotations", "creationTimestamp"}:
        yield problems.forbidden(f"spec.metadata.{name}", "cannot be set")
    yield from metadata.check_labels("spec.metadata.labels", inside.get("labels"))
    yield from requests.check(spec["spec"], "spec.spec")


def class_with_defaults(device_class: JsonObject) -> JsonObject:
    """Returns a DeviceClass with a spec."""
    return {**device_class, "spec": device_class.get("spec") or {}}


def check_class(device_class: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """Yields the problems of a DeviceClass."""
    spec = device_class["spec"]
    yield from requests.selectors(spec.get("selectors") or [], "spec.selectors")
    for number, config in enumerate(spec.get("config") or ()):
        yield from requests.config(config, f"spec.config[{number}]")
    name = spec.get("extendedResourceName")
    if name is not None and not names.is_extended_resource(name):
        yield problems.invalid("spec.extendedResourceName", name, "must be a valid extended resource name")

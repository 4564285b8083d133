"""ResourceClaims, their templates and DeviceClasses."""

import uuid
from collections.abc import Iterator
from typing import Any

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.model import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import metadata, names, requests

_RESULTS: int = 32
_CONSUMERS: int = 256
_SOURCES = ("FromClaim", "FromClass")


def claim_with_defaults(claim: JsonObject) -> JsonObject:
    """A claim with what the API server fills in."""
    return {**claim, "spec": requests.with_defaults(claim.get("spec") or {}), "status": claim.get("status") or {}}


def check_claim(claim: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a claim."""
    if subresource == "status":
        yield from _status(claim, old or {})
    elif old is None:
        yield from requests.check(claim["spec"], "spec")
    elif claim["spec"] != old["spec"]:
        yield problems.invalid("spec", claim["spec"], "field is immutable")


def _status(claim: JsonObject, old: JsonObject) -> Iterator[Problem]:
    status, before = claim["status"], (old.get("status") or {}).get("allocation")
    allocation, consumers = status.get("allocation"), status.get("reservedFor") or []
    for number, consumer in enumerate(consumers):
        for name in ("resource", "name", "uid"):
            if not consumer.get(name):
                yield problems.required(f"status.reservedFor[{number}].{name}")
    yield from requests.limited("status.reservedFor", consumers, _CONSUMERS)
    yield from requests.unique("status.reservedFor", [one.get("uid", "") for one in consumers])
    if consumers and allocation is None:
        yield problems.forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    if before is not None and allocation is not None and allocation != before:
        yield problems.invalid("status.allocation", allocation, "field is immutable")
    elif allocation is not None:
        yield from _allocation(allocation, set(requests.request_names(claim["spec"])))
    yield from _device_statuses(status.get("devices") or [], allocation or {})


def _allocation(allocation: JsonObject, known: set[str]) -> Iterator[Problem]:
    devices = allocation.get("devices") or {}
    path = "status.allocation.devices"
    results = devices.get("results") or []
    yield from requests.limited(f"{path}.results", results, _RESULTS)
    for number, result in enumerate(results):
        yield from _result(result, f"{path}.results[{number}]", known)
    for number, one in enumerate(devices.get("config") or ()):
        here = f"{path}.config[{number}]"
        if not one.get("source"):
            yield problems.required(f"{here}.source")
        elif one["source"] not in _SOURCES:
            yield problems.unsupported(f"{here}.source", one["source"], _SOURCES)
        yield from _known(one.get("requests") or [], f"{here}.requests", known)
        yield from requests.config(one, here)


def _known(wanted: list[str], path: str, known: set[str]) -> Iterator[Problem]:
    for number, name in enumerate(wanted):
        if name not in known:
            yield requests.no_such_request(f"{path}[{number}]", name)


def _result(result: JsonObject, path: str, known: set[str]) -> Iterator[Problem]:
    if result.get("request", "") not in known:
        yield requests.no_such_request(f"{path}.request", result.get("request", ""))
    yield from names.required_subdomain(f"{path}.driver", result.get("driver"), 63)
    yield from _pool(f"{path}.pool", result.get("pool"))
    if not result.get("device"):
        yield problems.required(f"{path}.device")
    else:
        yield from names.label(f"{path}.device", result["device"])
    if result.get("shareID") is not None:
        try:
            uuid.UUID(result["shareID"])
        except ValueError:
            detail = f"error validating uid: invalid UUID length: {len(result['shareID'])}"
            yield problems.invalid(f"{path}.shareID", result["shareID"], detail)


def _pool(field: str, value: Any) -> Iterator[Problem]:
    if not value:
        yield problems.required(field)
        return
    for part in value.split("/"):
        yield from names.subdomain(field, part)


def _device_statuses(devices: list[JsonObject], allocation: JsonObject) -> Iterator[Problem]:
    allocated = [_identity(one) for one in (allocation.get("devices") or {}).get("results") or ()]
    identities = [_identity(one) for one in devices]
    yield from requests.unique("status.devices", identities)
    for number, (device, identity) in enumerate(zip(devices, identities, strict=True)):
        here = f"status.devices[{number}]"
        if identity not in allocated:
            yield problems.invalid(here, identity, "must be an allocated device in the claim")
        if "data" in device:
            yield from requests.json_object(f"{here}.data", device["data"])
        yield from requests.limited(f"{here}.conditions", device.get("conditions") or [], 8)


def _identity(device: JsonObject) -> dict[str, str]:
    """What tells an allocated device from others, under the names that the API server's messages have."""
    fields = {"Driver": "driver", "Pool": "pool", "Device": "device", "ShareID": "shareID"}
    return {told: device.get(name) or "" for told, name in fields.items()}


def template_with_defaults(template: JsonObject) -> JsonObject:
    """A template with what the API server fills in."""
    spec = template.get("spec") or {}
    inside = requests.with_defaults(spec.get("spec") or {})
    return {**template, "spec": {**spec, "metadata": spec.get("metadata") or {}, "spec": inside}}


def check_template(template: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a template."""
    spec = template["spec"]
    if old is not None:
        if spec != old["spec"]:
            yield problems.invalid("spec", spec, "field is immutable")
        return
    for name in ("name", "generateName", "namespace", "ownerReferences", "finalizers"):
        if spec["metadata"].get(name):
            yield problems.forbidden(f"spec.metadata.{name}", "cannot be set")
    yield from metadata.check_labels("spec.metadata.labels", spec["metadata"].get("labels"))
    yield from requests.check(spec["spec"], "spec.spec")


def check_class(device_class: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a DeviceClass."""
    spec = device_class.get("spec") or {}
    yield from requests.selectors(spec.get("selectors") or [], "spec.selectors")
    for number, one in enumerate(spec.get("config") or ()):
        yield from requests.config(one, f"spec.config[{number}]")
    name = spec.get("extendedResourceName")
    if name is not None and not names.is_extended_resource(name):
        yield problems.invalid("spec.extendedResourceName", name, "must be a valid extended resource name")

"""Rules and defaults of ResourceClaims' specs, whose selectors and configuration DeviceClasses have as well."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import gates, problems
from dracpu_sandbox.apiserver.kinds.checking import duplicates
from dracpu_sandbox.apiserver.kinds.gates import Gates
from dracpu_sandbox.apiserver.kinds.kind import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import names
from dracpu_sandbox.cel.expressions import CelError, compile_expression

_LIMIT: Final = 32  # requests, selectors, constraints, configs
_SUB_REQUESTS: Final = 8
_OPAQUE_BYTES: Final = 10240
_NO_SUCH_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def with_defaults(spec: JsonObject) -> JsonObject:
    """Returns a claim's spec with the fields that the API server fills in."""
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return spec
    requests = [_request_with_defaults(request) for request in devices["requests"]]
    return {**spec, "devices": {**devices, "requests": requests}}


def _request_with_defaults(request: JsonObject) -> JsonObject:
    filled = dict(request)
    if "exactly" in request:
        filled["exactly"] = _exact_with_defaults(request["exactly"])
    if "firstAvailable" in request:
        filled["firstAvailable"] = [_exact_with_defaults(sub) for sub in request["firstAvailable"]]
    return filled


def _exact_with_defaults(exact: JsonObject) -> JsonObject:
    filled = {**exact, "allocationMode": exact.get("allocationMode") or "ExactCount"}
    if filled["allocationMode"] == "ExactCount" and not filled.get("count"):
        filled["count"] = 1
    if "tolerations" in exact:
        filled["tolerations"] = [{**old, "operator": old.get("operator") or "Equal"} for old in exact["tolerations"]]
    return filled


def gated(spec: JsonObject, on: Gates) -> JsonObject:
    """Returns a claim's spec without the fields whose feature gates are off."""
    devices = spec.get("devices") or {}
    if gates.DERIVED_ATTRIBUTES in on or not devices.get("requests"):
        return spec
    return {**spec, "devices": {**devices, "requests": [_gated_request(request) for request in devices["requests"]]}}


def _gated_request(request: JsonObject) -> JsonObject:
    left = dict(request)
    if "exactly" in request:
        left["exactly"] = _underived(request["exactly"])
    if "firstAvailable" in request:
        left["firstAvailable"] = [_underived(sub) for sub in request["firstAvailable"]]
    return left


def _underived(exact: JsonObject) -> JsonObject:
    return {name: value for name, value in exact.items() if name != "derivedAttributes"}


def check(spec: JsonObject, path: str) -> Iterator[Problem]:
    """Yields the problems of a claim's spec."""
    devices: JsonObject = spec.get("devices") or {}
    requests = devices.get("requests") or []
    known = set(request_names(spec))
    here = f"{path}.devices"
    yield from limited(f"{here}.requests", requests, _LIMIT)
    yield from duplicates(f"{here}.requests", [request["name"] for request in requests])
    for number, request in enumerate(requests[:_LIMIT]):
        yield from _request(request, f"{here}.requests[{number}]")
    constraints = devices.get("constraints") or []
    yield from limited(f"{here}.constraints", constraints, _LIMIT)
    for number, constraint in enumerate(constraints):
        yield from _constraint(constraint, f"{here}.constraints[{number}]", known)
    configs = devices.get("config") or []
    yield from limited(f"{here}.config", configs, _LIMIT)
    for number, parameters in enumerate(configs):
        yield from _named_requests(parameters, f"{here}.config[{number}]", known)
        yield from config(parameters, f"{here}.config[{number}]")


def request_names(spec: JsonObject) -> Iterator[str]:
    """Yields the names by which requests are referred to, like main or main/sub."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        yield request["name"]
        for sub in request.get("firstAvailable") or ():
            yield f"{request['name']}/{sub['name']}"


def _request(request: JsonObject, path: str) -> Iterator[Problem]:
    yield from names.label(f"{path}.name", request["name"])
    exactly: JsonObject | None = request.get("exactly")
    first: list[JsonObject] = request.get("firstAvailable") or []
    if (exactly is None) == (not first):
        yield problems.required(path, "exactly one of `exactly` or `firstAvailable` is required")
    elif exactly is not None:
        yield from _exact(exactly, f"{path}.exactly")
    else:
        yield from limited(f"{path}.firstAvailable", first, _SUB_REQUESTS)
        yield from duplicates(f"{path}.firstAvailable", [sub["name"] for sub in first])
        for number, sub in enumerate(first[:_SUB_REQUESTS]):
            yield from names.label(f"{path}.firstAvailable[{number}].name", sub["name"])
            yield from _exact(sub, f"{path}.firstAvailable[{number}]")


def _exact(exact: JsonObject, path: str) -> Iterator[Problem]:
    yield from names.subdomain(f"{path}.deviceClassName", exact["deviceClassName"])
    yield from selectors(exact.get("selectors") or [], f"{path}.selectors")
    if exact.get("adminAccess"):
        yield problems.unsupported_here(f"{path}.adminAccess", "admin access")
    count = exact.get("count", 0)
    if exact["allocationMode"] == "All" and count:
        yield problems.invalid(f"{path}.count", count, "must not be set when allocationMode is 'All'")
    elif exact["allocationMode"] == "ExactCount" and count <= 0:
        yield problems.invalid(f"{path}.count", count, "must be greater than zero")
    yield from tolerations(exact.get("tolerations") or (), f"{path}.tolerations")


def tolerations(found: Sequence[JsonObject], path: str) -> Iterator[Problem]:
    """Yields the problems of tolerations."""
    for number, toleration in enumerate(found):
        here = f"{path}[{number}]"
        if toleration.get("key"):
            yield from names.qualified(f"{here}.key", toleration["key"])
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            yield problems.invalid(f"{here}.value", toleration["value"], "must be empty for operator Exists")
        yield from names.label_value(f"{here}.value", toleration.get("value", ""))


def selectors(found: Sequence[JsonObject], path: str) -> Iterator[Problem]:
    """Yields the problems of selectors in CEL."""
    yield from limited(path, found, _LIMIT)
    for number, selector in enumerate(found[:_LIMIT]):
        here = f"{path}[{number}].cel"
        if "cel" not in selector:
            yield problems.required(here)
            continue
        expression = selector["cel"]["expression"]
        if len(expression) > _OPAQUE_BYTES:
            yield problems.too_long(f"{here}.expression", _OPAQUE_BYTES)
            continue
        try:
            compile_expression(expression, ("device",))
        except CelError as error:
            yield problems.invalid(f"{here}.expression", expression, f"compilation failed: {error}")


def _constraint(constraint: JsonObject, path: str, known: set[str]) -> Iterator[Problem]:
    yield from _named_requests(constraint, path, known)
    given = [name for name in ("matchAttribute", "distinctAttribute") if name in constraint]
    for name in given:
        yield from names.qualified_identifier(f"{path}.{name}", constraint[name])
    if not given:
        yield problems.required(path, "exactly one of `matchAttribute` or `distinctAttribute` is required")


def _named_requests(holder: JsonObject, path: str, known: set[str]) -> Iterator[Problem]:
    named = holder.get("requests") or []
    yield from limited(f"{path}.requests", named, _LIMIT)
    yield from duplicates(f"{path}.requests", named)
    yield from known_requests(named, f"{path}.requests", known)


def known_requests(named: Sequence[str], path: str, known: set[str]) -> Iterator[Problem]:
    """Yields a problem for each name that no request of the claim has."""
    for number, name in enumerate(named):
        yield from known_request(name, f"{path}[{number}]", known)


def known_request(name: str, path: str, known: set[str]) -> Iterator[Problem]:
    """Yields a problem when no request of the claim has the name."""
    if name not in known:
        yield problems.invalid(path, name, _NO_SUCH_REQUEST)


def config(parameters: JsonObject, path: str) -> Iterator[Problem]:
    """Yields the problems of a driver's parameters."""
    if "opaque" not in parameters:
        yield problems.required(f"{path}.opaque")
        return
    yield from names.driver(f"{path}.opaque.driver", parameters["opaque"]["driver"])
    yield from limited_json(f"{path}.opaque.parameters", parameters["opaque"]["parameters"])


def limited_json(field: str, value: Any) -> Iterator[Problem]:
    """Yields a problem when a free-form JSON value is too long."""
    if len(json.dumps(value, separators=(",", ":"))) > _OPAQUE_BYTES:
        yield problems.too_long(field, _OPAQUE_BYTES)


def limited(field: str, items: Sequence[Any], limit: int) -> Iterator[Problem]:
    """Yields a problem when a list is too long."""
    if len(items) > limit:
        yield problems.too_many(field, len(items), limit)

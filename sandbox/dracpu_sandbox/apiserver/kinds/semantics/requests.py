"""The specs of ResourceClaims: requests, constraints, configuration. Also those parts of DeviceClasses."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.model import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import names
from dracpu_sandbox.cel.expressions import CelError, compile_expression

_LIMIT: Final = 32  # requests, selectors, constraints, configs
_SUB_REQUESTS: Final = 8
_OPAQUE_BYTES: Final = 10240
_NO_SUCH_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
TAINT_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")


def with_defaults(spec: JsonObject) -> JsonObject:
    """A claim's spec with what the API server fills in."""
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return spec
    requests = [_request_with_defaults(one) for one in devices["requests"]]
    return {**spec, "devices": {**devices, "requests": requests}}


def _request_with_defaults(request: JsonObject) -> JsonObject:
    filled = dict(request)
    if "exactly" in request:
        filled["exactly"] = _exact_with_defaults(request["exactly"])
    if "firstAvailable" in request:
        filled["firstAvailable"] = [_exact_with_defaults(one) for one in request["firstAvailable"]]
    return filled


def _exact_with_defaults(exact: JsonObject) -> JsonObject:
    filled = {**exact, "allocationMode": exact.get("allocationMode") or "ExactCount"}
    if filled["allocationMode"] == "ExactCount" and not filled.get("count"):
        filled["count"] = 1
    if "tolerations" in exact:
        filled["tolerations"] = [{**one, "operator": one.get("operator") or "Equal"} for one in exact["tolerations"]]
    return filled


def check(spec: JsonObject, path: str) -> Iterator[Problem]:
    """What is wrong with a claim's spec."""
    devices: JsonObject = spec.get("devices") or {}
    requests = devices.get("requests") or []
    known = set(request_names(spec))
    here = f"{path}.devices"
    yield from limited(f"{here}.requests", requests, _LIMIT)
    yield from unique(f"{here}.requests", [one.get("name", "") for one in requests])
    for number, request in enumerate(requests[:_LIMIT]):
        yield from _request(request, f"{here}.requests[{number}]")
    constraints = devices.get("constraints") or []
    yield from limited(f"{here}.constraints", constraints, _LIMIT)
    for number, constraint in enumerate(constraints):
        yield from _constraint(constraint, f"{here}.constraints[{number}]", known)
    configs = devices.get("config") or []
    yield from limited(f"{here}.config", configs, _LIMIT)
    for number, one in enumerate(configs):
        yield from _named_requests(one, f"{here}.config[{number}]", known)
        yield from config(one, f"{here}.config[{number}]")


def request_names(spec: JsonObject) -> Iterator[str]:
    """What may be written where a request is meant: main, main/sub."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        yield request.get("name", "")
        for sub in request.get("firstAvailable") or ():
            yield f"{request.get('name', '')}/{sub.get('name', '')}"


def _request(request: JsonObject, path: str) -> Iterator[Problem]:
    yield from names.label(f"{path}.name", request.get("name", ""))
    exactly: JsonObject | None = request.get("exactly")
    first: list[JsonObject] = request.get("firstAvailable") or []
    one_of = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not first:
        yield problems.required(path, one_of)
    elif exactly is not None and first:
        yield problems.invalid(path, None, f"{one_of}, but multiple fields are set")
    elif exactly is not None:
        yield from _exact(exactly, f"{path}.exactly")
    else:
        yield from limited(f"{path}.firstAvailable", first, _SUB_REQUESTS)
        yield from unique(f"{path}.firstAvailable", [one.get("name", "") for one in first])
        for number, sub in enumerate(first[:_SUB_REQUESTS]):
            yield from names.label(f"{path}.firstAvailable[{number}].name", sub.get("name", ""))
            yield from _exact(sub, f"{path}.firstAvailable[{number}]")


def _exact(exact: JsonObject, path: str) -> Iterator[Problem]:
    yield from names.required_subdomain(f"{path}.deviceClassName", exact.get("deviceClassName"))
    yield from selectors(exact.get("selectors") or [], f"{path}.selectors")
    count = exact.get("count", 0)
    match exact["allocationMode"]:
        case "All":
            if count:
                detail = "must not be specified when allocationMode is 'All'"
                yield problems.invalid(f"{path}.count", count, detail)
        case "ExactCount":
            if count <= 0:
                yield problems.invalid(f"{path}.count", count, "must be greater than zero")
        case other:
            yield problems.unsupported(f"{path}.allocationMode", other, ("All", "ExactCount"))
    tolerations = exact.get("tolerations") or []
    for number, toleration in enumerate(tolerations):
        yield from _toleration(toleration, f"{path}.tolerations[{number}]")


def _toleration(toleration: JsonObject, path: str) -> Iterator[Problem]:
    if toleration.get("key"):
        yield from names.qualified(f"{path}.key", toleration["key"])
    match toleration["operator"]:
        case "Exists":
            if toleration.get("value"):
                yield problems.invalid(f"{path}.value", toleration["value"], "must be empty for operator `Exists`")
        case "Equal":
            yield from names.label_value(f"{path}.value", toleration.get("value", ""))
        case other:
            yield problems.unsupported(f"{path}.operator", other, ("Equal", "Exists"))
    if toleration.get("effect") and toleration["effect"] not in TAINT_EFFECTS:
        yield problems.unsupported(f"{path}.effect", toleration["effect"], TAINT_EFFECTS)


def selectors(found: Sequence[JsonObject], path: str) -> Iterator[Problem]:
    """What is wrong with selectors in CEL."""
    yield from limited(path, found, _LIMIT)
    for number, selector in enumerate(found[:_LIMIT]):
        here = f"{path}[{number}].cel"
        if "cel" not in selector:
            yield problems.required(here)
            continue
        expression = selector["cel"].get("expression", "")
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
        detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        yield problems.required(path, detail)  # that is what the API server says when none is set


def _named_requests(holder: JsonObject, path: str, known: set[str]) -> Iterator[Problem]:
    wanted = holder.get("requests") or []
    yield from limited(f"{path}.requests", wanted, _LIMIT)
    yield from unique(f"{path}.requests", wanted)
    for number, name in enumerate(wanted):
        if name not in known:
            yield problems.invalid(f"{path}.requests[{number}]", name, _NO_SUCH_REQUEST)


def config(one: JsonObject, path: str) -> Iterator[Problem]:
    """What is wrong with a driver's parameters."""
    if "opaque" not in one:
        yield problems.required(f"{path}.opaque")
        return
    opaque = one["opaque"]
    yield from names.required_subdomain(f"{path}.opaque.driver", opaque.get("driver"), 63)
    if "parameters" not in opaque:
        yield problems.required(f"{path}.opaque.parameters")
    else:
        yield from json_object(f"{path}.opaque.parameters", opaque["parameters"])


def json_object(field: str, value: Any) -> Iterator[Problem]:
    """Free JSON that must be an object, and not too long."""
    if len(json.dumps(value, separators=(",", ":"))) > _OPAQUE_BYTES:
        yield problems.too_long(field, _OPAQUE_BYTES)
    elif not isinstance(value, dict):
        yield problems.invalid(field, "<value omitted>", "must be a valid JSON object")


def limited(field: str, items: Sequence[Any], limit: int) -> Iterator[Problem]:
    """Whether a list is too long."""
    if len(items) > limit:
        yield problems.too_many(field, len(items), limit)


def unique(field: str, keys: Sequence[Any]) -> Iterator[Problem]:
    """Whether each item of a list has its own key."""
    for number, key in enumerate(keys):
        if key in keys[:number]:
            yield problems.duplicate(f"{field}[{number}]", key)


def no_such_request(field: str, name: str) -> Problem:
    """A request is named that the claim has not."""
    return problems.invalid(field, name, _NO_SUCH_REQUEST)

"""What a container asks for and may use at most."""

from collections.abc import Iterator
from fractions import Fraction

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.model import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.cel.quantity import Quantity


def check_resources(resources: JsonObject, path: str) -> Iterator[Problem]:
    """What is wrong with requests and limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for group, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            yield from _amount(name, text, f"{path}.{group}[{name}]")
    for name, text in requests.items():
        if name not in limits:
            if _is_whole(name):
                detail = "Limit must be set for non overcommitable resources"
                yield problems.required(f"{path}.limits", detail)
        elif _is_whole(name) and _number(text) != _number(limits[name]):
            detail = f"must be equal to {name} limit of {limits[name]}"
            yield problems.invalid(f"{path}.requests", text, detail)
        elif _number(text) > _number(limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield problems.invalid(f"{path}.requests", text, detail)


def _amount(name: str, text: str, path: str) -> Iterator[Problem]:
    if _number(text) < 0:
        yield problems.invalid(path, text, "must be greater than or equal to 0")
    if _is_whole(name) and _number(text).denominator != 1:
        yield problems.invalid(path, text, "must be an integer")


def _is_whole(name: str) -> bool:
    """Whether a resource comes in whole pieces that cannot be promised twice: all but Kubernetes' own and hugepages."""
    return "/" in name or name.startswith("hugepages-")


def _number(text: str) -> Fraction:
    return Quantity.parse(text).number


def quality_of_service(containers: list[JsonObject]) -> str:
    """Guaranteed, Burstable or BestEffort, of cpu and memory alone."""
    amounts = []
    for container in containers:
        resources = container.get("resources") or {}
        for name in ("cpu", "memory"):
            limit = (resources.get("limits") or {}).get(name)
            amounts.append(((resources.get("requests") or {}).get(name, limit), limit))
    if not any(request or limit for request, limit in amounts):
        return "BestEffort"
    guaranteed = all(request and limit and _number(request) == _number(limit) for request, limit in amounts)
    return "Guaranteed" if guaranteed else "Burstable"

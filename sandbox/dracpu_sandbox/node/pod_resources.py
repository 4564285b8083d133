"""Computes the resources that the kubelet gives pods and containers, and what an in-place resize changes. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import Final

from dracpu_sandbox.amounts import (
    Amounts,
    containers_of,
    limit_of,
    limits_of,
    quality_of_service,
    requested,
    requests_of,
)
from dracpu_sandbox.node.cgroups import UNLIMITED
from dracpu_sandbox.node.containers import PERIOD, Given
from dracpu_sandbox.resources import JsonObject

RESIZABLE: Final = ("memory", "cpu")  # in the order in which the kubelet changes them

_LEAST_SHARES: Final = 2
_MOST_SHARES: Final = 262_144
_SCORES: Final = {"Guaranteed": -997, "BestEffort": 1000}  # oom_score_adj
# kubelet 1.37: its memory QoS is on, and without a policy it gives containers no protection
_UNIFIED: Final = {"memory.oom.group": "1", "memory.swap.max": "0", "memory.min": "0", "memory.low": "0"}


@dataclass(frozen=True, slots=True)
class Change:
    """What a resize changes of one resource."""

    resource: str  # one of RESIZABLE
    in_pod: bool  # whether the kubelet writes the pod's cgroup
    grows: bool  # the pod's cgroup comes before its containers; otherwise after them
    containers: tuple[str, ...]  # in the order of the pod's spec


def container_of(pod: JsonObject, name: str) -> JsonObject:
    """Returns a container of a pod's spec."""
    return next(item for item in containers_of(pod["spec"]) if item["name"] == name)


def given(pod: JsonObject, container: JsonObject, node_memory: int) -> Given:
    """Returns what the kubelet asks of the runtime for a container."""
    limits, own = limits_of(container), limits_of(pod["spec"])
    memory = limits.get("memory", own.get("memory"))
    return Given(
        limits=_UNIFIED,
        memory=int(memory) if memory else 0,
        score=_score(pod, container, node_memory),
        shares=_shares(requests_of(container)),
        quota=floor(limits.get("cpu", Fraction(0)) * PERIOD),
    )


def given_to_pod(pod: JsonObject, resource: str) -> Given:
    """Returns what the kubelet announces to the runtime before it resizes the cgroup of a pod."""
    if resource == "memory":
        return Given(memory=int(limit_of(pod, "memory") or -1))
    return Given(shares=_shares(requested(pod)), quota=floor((limit_of(pod, "cpu") or 0) * PERIOD))


def with_pages(wanted: Given, pages: Sequence[str]) -> Given:
    """Returns an update by the kubelet: it names every size of hugepages with 0, also where the pod requests some."""
    return replace(wanted, hugepages=dict.fromkeys(pages, 0), score=None)


def pod_files(pod: JsonObject, resource: str) -> Mapping[str, str]:
    """Returns the files of a pod's cgroup that follow from its memory or from its CPU time."""
    limit = limit_of(pod, resource)
    if resource == "memory":
        return {"memory.max": str(int(limit)) if limit else UNLIMITED}
    weight = 1 + (_shares(requested(pod)) - _LEAST_SHARES) * 9999 // (_MOST_SHARES - _LEAST_SHARES)
    quota = str(floor(limit * PERIOD)) if limit else UNLIMITED
    return {"cpu.weight": str(weight), "cpu.max": f"{quota} {PERIOD}"}


def changes(before: JsonObject, after: JsonObject) -> Iterator[Change]:
    """Yields what is different in a pod's resources. If only memory requests change, its cgroup stays as it is."""
    for resource in RESIZABLE:
        former, wanted = _by_container(before, resource), _by_container(after, resource)
        changed = tuple(name for name, amounts in wanted.items() if former.get(name) != amounts)
        if changed:
            old, new = _size(before, resource), _size(after, resource)
            yield Change(resource, old != new, new >= old, changed)


def with_change(before: JsonObject, after: JsonObject, change: Change) -> JsonObject:
    """Returns a pod in whose containers this change has been made."""
    wanted = {item["name"]: item.get("resources") or {} for item in containers_of(after["spec"])}

    def changed(container: JsonObject) -> JsonObject:
        if container["name"] not in change.containers:
            return container
        resources = dict(container.get("resources") or {})
        for kind in ("limits", "requests"):
            figures = {name: text for name, text in (resources.get(kind) or {}).items() if name != change.resource}
            figure = (wanted[container["name"]].get(kind) or {}).get(change.resource)
            resources[kind] = figures if figure is None else {**figures, change.resource: figure}
        return {**container, "resources": resources}

    spec = dict(before["spec"])
    for group in ("initContainers", "containers"):
        if group in spec:
            spec[group] = [changed(container) for container in spec[group]]
    return {**before, "spec": spec}


def _by_container(pod: JsonObject, resource: str) -> dict[str, tuple[Fraction | None, Fraction | None]]:
    return {
        item["name"]: (requests_of(item).get(resource), limits_of(item).get(resource))
        for item in containers_of(pod["spec"])
    }


def _size(pod: JsonObject, resource: str) -> tuple[float, float]:
    """Returns a figure that grows with a resource of the pod's cgroup: no limit is the largest one."""
    limit = limit_of(pod, resource)
    asked = requested(pod).get(resource, Fraction(0)) if resource == "cpu" else 0
    return float("inf") if limit is None else float(limit), float(asked)


def _shares(requests: Amounts) -> int:
    return max(_LEAST_SHARES, min(_MOST_SHARES, floor(requests.get("cpu", Fraction(0)) * 1024)))


def _score(pod: JsonObject, container: JsonObject, node_memory: int) -> int:
    """Returns oom_score_adj: a burstable container that requests more is killed later."""
    quality = quality_of_service(pod["spec"])
    if quality in _SCORES:
        return _SCORES[quality]
    share = 1000 * requests_of(container).get("memory", Fraction(0)) / node_memory
    return min(999, max(3, floor(1000 - share)))  # kubelet: above that of every guaranteed pod

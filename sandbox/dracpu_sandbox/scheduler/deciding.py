"""Decides on the node of a pod and the devices of its claims, one pod at a time, from a snapshot of the cluster."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from dracpu_sandbox.cel.quantity import QuantityError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import JsonObject, Key
from dracpu_sandbox.scheduler.allocator import AllocationError, Effort, allocate
from dracpu_sandbox.scheduler.claims import allocation_of, claim_names, trouble_of
from dracpu_sandbox.scheduler.nodes import refusal, selector_matches
from dracpu_sandbox.scheduler.requests import Claim, DeviceClass, read_claim
from dracpu_sandbox.scheduler.results import allocation
from dracpu_sandbox.scheduler.world import World

SCHEDULER: Final = "default-scheduler"
_NOT_FITTING: Final = "cannot allocate all claims"  # the text of kube-scheduler, which gives no reason


@dataclass(frozen=True, slots=True)
class Placement:
    """The pod's node, with allocations for the claims that have none yet."""

    node: str
    allocations: Mapping[Key, JsonObject] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why the pod must wait."""

    message: str
    reason: str = "Unschedulable"


def is_pending(pod: JsonObject) -> bool:
    """Whether this scheduler must place the pod."""
    spec = pod["spec"]
    return not (
        spec.get("nodeName")
        or spec.get("schedulingGates")
        or spec.get("schedulerName", SCHEDULER) != SCHEDULER
        or pod["metadata"].get("deletionTimestamp")
        or (pod.get("status") or {}).get("phase", "Pending") != "Pending"
    )


def decide(
    pod: JsonObject, world: World, new_share: Callable[[], str] = lambda: str(uuid4())
) -> Placement | Refusal | None:
    """Chooses the node with the fewest pods that fits; returns None while a claim of the pod is not made yet."""
    names = claim_names(pod)
    if names is None:
        return None
    try:
        claims = _claims(pod, names, world)
        waiting = {key: read_claim(claim) for key, claim in claims.items() if allocation_of(claim) is None}
        _require_classes(waiting.values(), world.classes)
    except _UnusableError as error:
        return Refusal(_message(world, str(error)))
    except (KeyError, ValueError, QuantityError) as error:
        return Refusal(f"a resourceclaim of the pod cannot be read: {error}", "SchedulerError")
    if not world.nodes:
        return Refusal("no nodes available to schedule pods")
    return _search(pod, claims.values(), waiting, world, new_share)


def _search(
    pod: JsonObject,
    claims: Collection[JsonObject],
    waiting: Mapping[Key, Claim],
    world: World,
    new_share: Callable[[], str],
) -> Placement | Refusal:
    """Tries one node after the other. As in kube-scheduler, an error ends the search, even if another node fits."""
    reasons: Counter[str] = Counter()
    effort = Effort()
    for name in sorted(world.nodes, key=lambda node: (world.used.get(node, {}).get("pods", 0), node)):
        node = world.nodes[name]
        reason = refusal(pod, node, world.used.get(name, {})) or _away(claims, node)
        if reason:
            reasons[reason] += 1
            continue
        try:
            picks = allocate(list(waiting.values()), world.classes, world.inventory.offer(name), world.usage, effort)
        except AllocationError as error:
            return Refusal(f'running "DynamicResources" filter plugin: node {name}: {error}', "SchedulerError")
        if picks is not None:
            allocations = {
                key: allocation(claim, picked, world.classes, name, new_share)
                for (key, claim), picked in zip(waiting.items(), picks, strict=True)
            }
            return Placement(name, allocations)
        reasons[_NOT_FITTING] += 1
    return Refusal(_message(world, ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))))


class _UnusableError(SandboxError):
    """With its current claims, the pod cannot run on any node."""


def _claims(pod: JsonObject, names: Iterable[str], world: World) -> dict[Key, JsonObject]:
    """Returns the pod's claims. Raises _UnusableError."""
    found: dict[Key, JsonObject] = {}
    for name in names:
        key = pod["metadata"].get("namespace", ""), name
        claim = world.claims.get(key)
        if claim is None:
            raise _UnusableError(f'resourceclaim "{name}" not found')
        if trouble := trouble_of(pod, claim):
            raise _UnusableError(trouble)
        found[key] = claim
    return found


def _require_classes(claims: Iterable[Claim], classes: Mapping[str, DeviceClass]) -> None:
    """Raises _UnusableError if a device class does not exist."""
    for claim in claims:
        for request in claim.requests:
            for wanted in request.ways:
                if wanted.device_class not in classes:
                    raise _UnusableError(f"request {wanted.name}: device class {wanted.device_class} does not exist")


def _away(claims: Iterable[JsonObject], node: JsonObject) -> str:
    """Returns why the pod cannot use allocated claims on this node: their devices are on another one."""
    for claim in claims:
        selector = (allocation_of(claim) or {}).get("nodeSelector")
        if selector and not selector_matches(selector, node):
            return "resourceclaim not available on the node"
    return ""


def _message(world: World, reason: str) -> str:
    return f"0/{len(world.nodes)} nodes are available: {reason}."

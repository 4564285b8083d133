"""Where a pod goes and what its claims get: one decision at a time, made from a picture of the cluster."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from dracpu_sandbox.cel.quantity import QuantityError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.allocator import AllocationError, Effort, allocate
from dracpu_sandbox.scheduler.claims import allocation_of, claims_of, is_reserved_for, trouble_of, users
from dracpu_sandbox.scheduler.nodes import refusal, selector_matches
from dracpu_sandbox.scheduler.requests import Claim, DeviceClass, read_claim
from dracpu_sandbox.scheduler.results import allocation
from dracpu_sandbox.scheduler.world import Key, World

SCHEDULER: Final = "default-scheduler"
_NOT_FITTING: Final = "cannot allocate all claims"  # kube-scheduler's words; it never says why


@dataclass(frozen=True, slots=True)
class Placement:
    """The pod goes to this node; these claims get what stands here, all others have theirs."""

    node: str
    allocations: Mapping[Key, JsonObject] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The pod waits. Claims that hold it back without being of use to anybody else may be released."""

    message: str
    reason: str = "Unschedulable"
    release: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class TooEarly:
    """Claims of the pod are still being made: there is nothing to decide, and nothing to tell."""


def is_pending(pod: JsonObject) -> bool:
    """Whether it is for this scheduler to place the pod."""
    spec = pod["spec"]
    return not (
        spec.get("nodeName")
        or spec.get("schedulingGates")
        or spec.get("schedulerName", SCHEDULER) != SCHEDULER
        or pod["metadata"].get("deletionTimestamp")
        or (pod.get("status") or {}).get("phase", "Pending") != "Pending"
    )


def order(pod: JsonObject) -> tuple[int, str, str]:
    """Pods are placed by priority, then by age."""
    metadata = pod["metadata"]
    return -(pod["spec"].get("priority") or 0), metadata.get("creationTimestamp") or "", metadata["name"]


def decide(
    pod: JsonObject, world: World, new_share: Callable[[], str] = lambda: str(uuid4())
) -> Placement | Refusal | TooEarly:
    """The node with the fewest pods on which everything works out."""
    if any(one.name is None for one in claims_of(pod)):
        return TooEarly()
    try:
        claims = _claims(pod, world)
        waiting = {key: read_claim(claim) for key, claim in claims.items() if allocation_of(claim) is None}
        _require_classes(waiting.values(), world.classes)
    except _UnusableError as error:
        return Refusal(_message(world, str(error)))
    except (KeyError, QuantityError) as error:
        return Refusal(f"a resourceclaim of the pod cannot be read: {error}", "SchedulerError")
    return _search(pod, claims, waiting, world, new_share)


def _search(
    pod: JsonObject,
    claims: Mapping[Key, JsonObject],
    waiting: Mapping[Key, Claim],
    world: World,
    new_share: Callable[[], str],
) -> Placement | Refusal:
    """Goes from node to node. An error ends it, though another node might do: so does kube-scheduler."""
    reasons: Counter[str] = Counter()
    effort = Effort()
    for name in sorted(world.nodes, key=lambda one: (world.rooms.get(one, {}).get("pods", 0), one)):
        node = world.nodes[name]
        reason = refusal(pod, node, world.rooms.get(name, {})) or _away(claims, node)
        if reason:
            reasons[reason] += 1
            continue
        try:
            picks = allocate(list(waiting.values()), world.classes, world.inventory.offer(node), world.usage, effort)
        except AllocationError as error:
            return Refusal(f'running "DynamicResources" filter plugin: node {name}: {error}', "SchedulerError")
        if picks is None:
            reasons[_NOT_FITTING] += 1
            continue
        allocations = {
            key: allocation(claim, picked, world.classes, name, new_share)
            for (key, claim), picked in zip(waiting.items(), picks, strict=True)
        }
        return Placement(name, allocations)
    return Refusal(_summary(world, reasons), release=_useless(pod, claims))


class _UnusableError(SandboxError):
    """The pod cannot run with its claims as they are, on no node."""


def _claims(pod: JsonObject, world: World) -> dict[Key, JsonObject]:
    """The pod's claims. Raises _UnusableError."""
    found: dict[Key, JsonObject] = {}
    for one in claims_of(pod):
        if not one.name:
            continue  # none is needed
        key = pod["metadata"].get("namespace", ""), one.name
        claim = world.claims.get(key)
        if claim is None:
            raise _UnusableError(f'resourceclaim "{one.name}" not found')
        if trouble := trouble_of(pod, one, claim):
            raise _UnusableError(trouble)
        found[key] = claim
    return found


def _require_classes(claims: Iterable[Claim], classes: Mapping[str, DeviceClass]) -> None:
    """Raises _UnusableError."""
    for claim in claims:
        for request in claim.requests:
            for wanted in request.ways:
                if wanted.device_class not in classes:
                    raise _UnusableError(f"request {wanted.name}: device class {wanted.device_class} does not exist")


def _away(claims: Mapping[Key, JsonObject], node: JsonObject) -> str:
    """Whether a claim that has its devices already has them elsewhere."""
    for claim in claims.values():
        selector = (allocation_of(claim) or {}).get("nodeSelector")
        if selector and not selector_matches(selector, node):
            return "resourceclaim not available on the node"
    return ""


def _useless(pod: JsonObject, claims: Mapping[Key, JsonObject]) -> tuple[Key, ...]:
    """Claims whose devices only this pod would use, on a node where it cannot run."""
    return tuple(
        key
        for key, claim in claims.items()
        if allocation_of(claim) is not None
        and (not users(claim) or (is_reserved_for(claim, pod) and len(users(claim)) == 1))
    )


def _message(world: World, reason: str) -> str:
    return f"0/{len(world.nodes)} nodes are available: {reason}."


def _summary(world: World, reasons: Counter[str]) -> str:
    if not world.nodes:
        return "no nodes available to schedule pods"
    return _message(world, ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items())))

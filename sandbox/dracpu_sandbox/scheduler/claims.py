"""The claims of a pod, as they stand in the API."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dracpu_sandbox.resources import JsonObject

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_MOST_USERS: Final = 256  # entries of reservedFor: resource.k8s.io/v1


@dataclass(frozen=True, slots=True)
class ClaimOfPod:
    """An entry of spec.resourceClaims. The name is None until its claim is made, and "" when none is needed."""

    name: str | None
    generated: bool  # from a template


def claims_of(pod: JsonObject) -> Iterator[ClaimOfPod]:
    """The claims that a pod's spec names, in order."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {one["name"]: one.get("resourceClaimName") or "" for one in statuses}
    for entry in pod["spec"].get("resourceClaims") or ():
        named = entry.get("resourceClaimName")
        yield ClaimOfPod(named or made.get(entry["name"]), not named)


def trouble_of(pod: JsonObject, one: ClaimOfPod, claim: JsonObject) -> str:
    """Why the pod cannot use this claim, wherever it runs; "" when it can."""
    if claim["metadata"].get("deletionTimestamp"):
        return f'resourceclaim "{one.name}" is being deleted'
    if one.generated and not is_owned_by(claim, pod):
        return f'resourceclaim "{one.name}" was not created for the pod'
    if not is_reserved_for(claim, pod) and len(users(claim)) >= _MOST_USERS:
        return f'resourceclaim "{one.name}" is in use by {_MOST_USERS} pods, which is the limit'
    return ""


def allocation_of(claim: JsonObject) -> JsonObject | None:
    """What the claim has got."""
    return (claim.get("status") or {}).get("allocation")


def users(claim: JsonObject) -> list[JsonObject]:
    """The entries of reservedFor."""
    return list((claim.get("status") or {}).get("reservedFor") or ())


def standing(claim: JsonObject) -> tuple[str, bool, bool, int]:
    """What of a claim decides about pods; while it is the same, no pod fits that did not fit before."""
    metadata = claim["metadata"]
    leaving, has_devices = bool(metadata.get("deletionTimestamp")), allocation_of(claim) is not None
    return metadata["uid"], leaving, has_devices, len(users(claim))


def is_reserved_for(claim: JsonObject, pod: JsonObject) -> bool:
    """Whether the pod is among the claim's users."""
    return any(one["uid"] == pod["metadata"]["uid"] for one in users(claim))


def is_owned_by(one: JsonObject, owner: JsonObject) -> bool:
    """Whether an ownerReference names this very object."""
    references: Iterable[JsonObject] = one["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def reserved(claim: JsonObject, pod: JsonObject, allocation: JsonObject | None) -> JsonObject:
    """The claim with this allocation, if it has none yet, and the pod among its users."""
    status = dict(claim.get("status") or {})
    if allocation is not None:
        status["allocation"] = allocation
    if not is_reserved_for(claim, pod):
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        status["reservedFor"] = [*users(claim), user]
    return {**claim, "status": status}


def released(claim: JsonObject, still_uses: Callable[[JsonObject], bool]) -> JsonObject:
    """The claim without the users that are gone; without an allocation when nobody is left."""
    status = dict(claim.get("status") or {})
    left = [one for one in users(claim) if still_uses(one)]
    status.pop("reservedFor", None)
    if left:
        status["reservedFor"] = left
    else:
        status.pop("allocation", None)
        status.pop("devices", None)
    return {**claim, "status": status}


def with_finalizer(claim: JsonObject, wanted: bool) -> JsonObject:
    """The claim protected from deletion, or no more."""
    finalizers = [one for one in claim["metadata"].get("finalizers") or () if one != FINALIZER]
    metadata = {**claim["metadata"], "finalizers": [*finalizers, FINALIZER] if wanted else finalizers}
    return {**claim, "metadata": metadata}


def has_finalizer(claim: JsonObject) -> bool:
    """Whether the claim is protected from deletion."""
    return FINALIZER in (claim["metadata"].get("finalizers") or ())

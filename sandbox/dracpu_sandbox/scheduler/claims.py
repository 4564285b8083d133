"""Reads and changes the claims of a pod as API objects."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dracpu_sandbox.resources import JsonObject

FINALIZER: Final = "resource.kubernetes.io/delete-protection"


def made_claims(pod: JsonObject) -> Mapping[str, str]:
    """Returns the claims made for a pod, by the names of their entries in its spec; "" if no claim was needed."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {status["name"]: status.get("resourceClaimName") or "" for status in statuses}


def claim_names(pod: JsonObject) -> list[str] | None:
    """Returns the names of the claims that a pod uses, in order; None if a claim is not made yet."""
    made, names = made_claims(pod), []
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        if name is None:
            return None
        if name and name not in names:
            names.append(name)
    return names


def trouble_of(pod: JsonObject, claim: JsonObject) -> str:
    """Returns why the pod cannot use this claim on any node; "" if it can."""
    metadata = claim["metadata"]
    if metadata.get("deletionTimestamp"):
        return f'resourceclaim "{metadata["name"]}" is being deleted'
    if metadata["name"] in made_claims(pod).values() and not is_owned_by(claim, pod):
        return f'resourceclaim "{metadata["name"]}" was not created for the pod'
    return ""


def allocation_of(claim: JsonObject) -> JsonObject | None:
    """Returns the claim's allocation, or None."""
    return (claim.get("status") or {}).get("allocation")


def users(claim: JsonObject) -> list[JsonObject]:
    """Returns the entries of reservedFor."""
    return list((claim.get("status") or {}).get("reservedFor") or ())


def is_reserved_for(claim: JsonObject, pod: JsonObject) -> bool:
    """Whether the pod is among the claim's users."""
    return any(user["uid"] == pod["metadata"]["uid"] for user in users(claim))


def is_owned_by(item: JsonObject, owner: JsonObject) -> bool:
    """Whether an ownerReference of the object has the owner's UID."""
    references: Iterable[JsonObject] = item["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def reserved(claim: JsonObject, pod: JsonObject, allocation: JsonObject | None) -> JsonObject:
    """Returns the claim with this allocation, if given, and with the pod among its users."""
    status = dict(claim.get("status") or {})
    if allocation is not None:
        status["allocation"] = allocation
    if not is_reserved_for(claim, pod):
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        status["reservedFor"] = [*users(claim), user]
    return {**claim, "status": status}


def released(claim: JsonObject, still_uses: Callable[[JsonObject], bool]) -> JsonObject:
    """Returns the claim without users that have ended, and without its allocation if no user is left."""
    status = dict(claim.get("status") or {})
    left = [user for user in users(claim) if still_uses(user)]
    status.pop("reservedFor", None)
    if left:
        status["reservedFor"] = left
    else:
        status.pop("allocation", None)
        status.pop("devices", None)
    return {**claim, "status": status}


def with_finalizer(claim: JsonObject, protected: bool) -> JsonObject:
    """Returns the claim with or without protection from deletion."""
    finalizers = [name for name in claim["metadata"].get("finalizers") or () if name != FINALIZER]
    metadata = {**claim["metadata"], "finalizers": [*finalizers, FINALIZER] if protected else finalizers}
    return {**claim, "metadata": metadata}


def has_finalizer(claim: JsonObject) -> bool:
    """Whether the claim is protected from deletion."""
    return FINALIZER in (claim["metadata"].get("finalizers") or ())

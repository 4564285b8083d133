"""Makes claims from templates: each pod gets its own claim, which is deleted when the pod has ended."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from dracpu_sandbox.client import InvalidError, NotFoundError
from dracpu_sandbox.controllers.cluster import MANAGER, Cluster, Duty
from dracpu_sandbox.resources import CLAIM_TEMPLATES, CLAIMS, PODS, JsonObject, Key, key_of
from dracpu_sandbox.scheduler.claims import is_owned_by, made_claims
from dracpu_sandbox.scheduler.world import is_finished

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
_LONGEST_PREFIX: Final = 253 - 5  # generateName adds five characters


def claims_to_make(cluster: Cluster) -> Iterator[Duty]:
    """Makes the claims for templates that pods refer to, and writes the names of the claims into the pods' statuses."""
    for pod in cluster.pods.all():
        if missing_claims(pod, cluster.claims.get):
            yield partial(_make, cluster, pod)


async def _make(cluster: Cluster, pod: JsonObject) -> None:
    (namespace, name), made = key_of(pod), dict[str, str]()
    current = await cluster.client.get(PODS, name, namespace)  # the watched copy may be outdated
    if current["metadata"]["uid"] != pod["metadata"]["uid"]:
        return
    for entry in missing_claims(current, cluster.claims.get):
        claim = _made_before(cluster, current, entry["name"]) or await _create(cluster, current, entry)
        if claim is not None:
            made[entry["name"]] = claim["metadata"]["name"]
    if made:
        names = {**made_claims(current), **made}
        statuses = [{"name": entry, "resourceClaimName": claim} for entry, claim in names.items()]
        written = await cluster.client.patch_status(PODS, pod, {"resourceClaimStatuses": statuses}, manager=MANAGER)
        cluster.pods.wrote(written)


def _made_before(cluster: Cluster, pod: JsonObject, entry: str) -> JsonObject | None:
    """Returns a claim that was made for the pod, but is missing in the pod's status because an answer was lost."""
    for claim in cluster.claims.all():
        annotations = claim["metadata"].get("annotations") or {}
        leaving = claim["metadata"].get("deletionTimestamp")
        if annotations.get(POD_CLAIM_NAME) == entry and is_owned_by(claim, pod) and not leaving:
            return claim
    return None


async def _create(cluster: Cluster, pod: JsonObject, entry: JsonObject) -> JsonObject | None:
    name, namespace = entry["resourceClaimTemplateName"], pod["metadata"]["namespace"]
    try:
        template = await cluster.client.get(CLAIM_TEMPLATES, name, namespace)
        claim = await cluster.client.create(CLAIMS, claim_from(template, pod, entry["name"]), namespace)
    except (NotFoundError, InvalidError) as error:
        note = f'PodResourceClaim {entry["name"]}: resource claim template "{name}": {error}'
        cluster.events.emit(pod, "FailedResourceClaimCreation", note, action="CreateResourceClaim", warning=True)
        return None
    cluster.claims.wrote(claim)
    return claim


def missing_claims(pod: JsonObject, claim: Callable[[Key], JsonObject | None]) -> list[JsonObject]:
    """Returns the entries of a pod's spec that need a claim: none was made yet, or it was deleted too early."""
    if is_finished(pod) or pod["metadata"].get("deletionTimestamp"):
        return []
    names = made_claims(pod)

    def is_made(entry: str) -> bool:
        if not names.get(entry):
            return entry in names  # an entry without a name: no claim is needed
        made = claim((pod["metadata"].get("namespace", ""), names[entry]))
        return made is not None and is_owned_by(made, pod)

    entries: Iterable[JsonObject] = pod["spec"].get("resourceClaims") or ()
    return [entry for entry in entries if entry.get("resourceClaimTemplateName") and not is_made(entry["name"])]


def claim_from(template: JsonObject, pod: JsonObject, entry: str) -> JsonObject:
    """Returns the claim for one entry of a pod's spec."""
    metadata, spec = pod["metadata"], template["spec"]
    given = spec.get("metadata") or {}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {
            "generateName": f"{metadata['name']}-{entry}"[: _LONGEST_PREFIX - 1] + "-",
            "namespace": metadata["namespace"],
            "labels": given.get("labels") or {},
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM_NAME: entry},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": spec["spec"],
    }


def claims_to_remove(cluster: Cluster) -> Iterator[Duty]:
    """Deletes the claims of pods that have ended or were deleted."""
    for claim in cluster.claims.all():
        owner = _owner(claim)
        if owner is None or claim["metadata"].get("deletionTimestamp"):
            continue
        if _is_over(cluster.pods.get((claim["metadata"]["namespace"], owner["name"])), owner):
            yield partial(_remove, cluster, claim, owner)


async def _remove(cluster: Cluster, claim: JsonObject, owner: JsonObject) -> None:
    namespace, name = key_of(claim)
    try:  # the watch of pods may be behind that of claims
        pod: JsonObject | None = await cluster.client.get(PODS, owner["name"], namespace)
    except NotFoundError:
        pod = None
    if _is_over(pod, owner):
        await cluster.client.delete(CLAIMS, name, namespace, uid=claim["metadata"]["uid"])


def _is_over(pod: JsonObject | None, owner: JsonObject) -> bool:
    return pod is None or pod["metadata"]["uid"] != owner["uid"] or is_finished(pod)


def _owner(claim: JsonObject) -> JsonObject | None:
    """Returns the owner reference to the pod for which the claim was made."""
    references: Iterable[JsonObject] = claim["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference["kind"] == "Pod"), None)

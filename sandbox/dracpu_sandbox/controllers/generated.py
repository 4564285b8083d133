"""Claims made from templates: each pod gets its own, which goes when the pod has ended."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar, Final

from dracpu_sandbox.client import InvalidError, NotFoundError
from dracpu_sandbox.controllers.controller import Cluster, Controller, Duty
from dracpu_sandbox.resources import CLAIM_TEMPLATES, CLAIMS, PODS, JsonObject
from dracpu_sandbox.scheduler.claims import is_owned_by
from dracpu_sandbox.scheduler.world import Key, is_finished, key_of

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
_LONGEST_PREFIX: Final = 253 - 5  # what generateName adds


class ClaimMaker(Controller):
    """Makes the claims that pods' specs name templates for, and tells the pods."""

    name: ClassVar[str] = "resource_claim"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, cluster.pods, cluster.templates, cluster.claims)
        self._complained: set[tuple[str, str]] = set()  # UID and entry: one Event is enough

    def duties(self) -> Iterable[Duty]:
        for pod in self.cluster.pods.all():
            if missing_claims(pod, self.cluster.claims.get):
                yield partial(self._make, pod)

    async def _make(self, pod: JsonObject) -> None:
        made = []
        for entry in missing_claims(pod, self.cluster.claims.get):
            if await self._is_settled(pod, entry["name"]):
                continue
            claim = self._made_before(pod, entry["name"]) or await self._create(pod, entry)
            if claim is not None:
                made.append({"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]})
        if not made:
            return
        fresh = {one["name"] for one in made}
        told = [one for one in claims_told(pod) if one["name"] not in fresh]
        status = {"resourceClaimStatuses": [*told, *made]}
        written = await self.cluster.client.patch_status(PODS, pod, status, manager=self.name)
        self.cluster.pods.wrote(written)

    async def _is_settled(self, pod: JsonObject, entry: str) -> bool:
        """Whether a claim that the pod was told of is there, or the pod is not: what is followed may be behind."""
        name = next((one.get("resourceClaimName") for one in claims_told(pod) if one["name"] == entry), None)
        if not name:
            return False
        (namespace, pod_name), client = key_of(pod), self.cluster.client
        current = await client.get(PODS, pod_name, namespace)
        if current["metadata"]["uid"] != pod["metadata"]["uid"] or not missing_claims(current, lambda key: None):
            return True
        try:
            claim = await client.get(CLAIMS, name, namespace)
        except NotFoundError:
            return False
        self.cluster.claims.wrote(claim)
        return is_owned_by(claim, pod)

    def _made_before(self, pod: JsonObject, entry: str) -> JsonObject | None:
        """A claim that the pod was not told of: the answer was lost."""
        for claim in self.cluster.claims.all():
            annotations = claim["metadata"].get("annotations") or {}
            leaving = claim["metadata"].get("deletionTimestamp")
            if annotations.get(POD_CLAIM_NAME) == entry and is_owned_by(claim, pod) and not leaving:
                return claim
        return None

    async def _create(self, pod: JsonObject, entry: JsonObject) -> JsonObject | None:
        name, namespace = entry["resourceClaimTemplateName"], pod["metadata"]["namespace"]
        try:
            template = await self.cluster.client.get(CLAIM_TEMPLATES, name, namespace)
            claim = await self.cluster.client.create(CLAIMS, claim_from(template, pod, entry["name"]), namespace)
        except (NotFoundError, InvalidError) as error:
            await self._complain(
                pod, entry["name"], f'PodResourceClaim {entry["name"]}: resource claim template "{name}": {error}'
            )
            return None
        self.cluster.claims.wrote(claim)
        return claim

    async def _complain(self, pod: JsonObject, entry: str, note: str) -> None:
        key = pod["metadata"]["uid"], entry
        if key not in self._complained:
            self._complained.add(key)
            await self.tell(pod, reason="FailedResourceClaimCreation", note=note, action="CreateResourceClaim")


def claims_told(pod: JsonObject) -> list[JsonObject]:
    """What a pod's status says of the claims that were made for it."""
    return list((pod.get("status") or {}).get("resourceClaimStatuses") or ())


def missing_claims(pod: JsonObject, claim: Callable[[Key], JsonObject | None]) -> list[JsonObject]:
    """The entries of a pod's spec whose claim is still to be made, or to be made again: it was deleted too early."""
    if is_finished(pod) or pod["metadata"].get("deletionTimestamp"):
        return []
    told: dict[str, str] = {one["name"]: one.get("resourceClaimName") or "" for one in claims_told(pod)}

    def is_made(entry: str) -> bool:
        if not told.get(entry):
            return entry in told  # and none is needed
        made = claim((pod["metadata"].get("namespace", ""), told[entry]))
        return made is not None and is_owned_by(made, pod)

    entries = pod["spec"].get("resourceClaims") or ()
    return [one for one in entries if one.get("resourceClaimTemplateName") and not is_made(one["name"])]


def claim_from(template: JsonObject, pod: JsonObject, entry: str) -> JsonObject:
    """The claim of one entry of a pod's spec."""
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


class ClaimRemover(Controller):
    """Deletes the claims of pods that have ended, or are gone."""

    name: ClassVar[str] = "resource_claim"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, cluster.pods, cluster.claims)

    def duties(self) -> Iterable[Duty]:
        for claim in self.cluster.claims.all():
            owner = _owner(claim)
            if owner is None or claim["metadata"].get("deletionTimestamp"):
                continue
            pod = self.cluster.pods.get((claim["metadata"]["namespace"], owner["name"]))
            if pod is None or pod["metadata"]["uid"] != owner["uid"] or is_finished(pod):
                yield partial(self._remove, claim, owner)

    async def _remove(self, claim: JsonObject, owner: JsonObject) -> None:
        (namespace, name), client = key_of(claim), self.cluster.client
        try:  # what is followed may be behind: a claim can be heard of before its pod
            pod = await client.get(PODS, owner["name"], namespace)
        except NotFoundError:
            pod = None
        if pod is None or pod["metadata"]["uid"] != owner["uid"] or is_finished(pod):
            await client.delete(CLAIMS, name, namespace, uid=claim["metadata"]["uid"])


def _owner(claim: JsonObject) -> JsonObject | None:
    """The pod that the claim was made for."""
    references: Iterable[JsonObject] = claim["metadata"].get("ownerReferences") or ()
    return next((one for one in references if one.get("controller") and one["kind"] == "Pod"), None)

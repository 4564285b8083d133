"""Removes pods that have ended or were deleted from their claims; deallocates claims that no pod uses."""

from collections.abc import Iterator
from functools import partial

from dracpu_sandbox.client import NotFoundError
from dracpu_sandbox.controllers.cluster import Cluster, Duty
from dracpu_sandbox.resources import PODS, JsonObject
from dracpu_sandbox.scheduler.claims import allocation_of, has_finalizer, released, users, with_finalizer
from dracpu_sandbox.scheduler.world import is_finished


def claims_to_release(cluster: Cluster) -> Iterator[Duty]:
    """Keeps reservedFor up to date, deallocates unused claims, and removes the finalizer of deleted ones."""
    for claim in cluster.claims.all():
        namespace, deleted = claim["metadata"]["namespace"], claim["metadata"].get("deletionTimestamp")
        pods = {user["uid"]: cluster.pods.get((namespace, user["name"])) for user in users(claim)}
        unused = deleted and not pods and (has_finalizer(claim) or allocation_of(claim))
        if unused or any(not uses(pod, uid) for uid, pod in pods.items()):
            yield partial(_release, cluster, claim)


async def _release(cluster: Cluster, claim: JsonObject) -> None:
    gone = {user["uid"] for user in users(claim) if await _is_gone(cluster, claim, user)}
    if users(claim) and not gone:
        return
    if gone or allocation_of(claim):
        claim = await cluster.write_claim(released(claim, lambda user: user["uid"] not in gone), "status")
    if not users(claim) and has_finalizer(claim):
        await cluster.write_claim(with_finalizer(claim, protected=False))


async def _is_gone(cluster: Cluster, claim: JsonObject, user: JsonObject) -> bool:
    """Reads the pod from the API server, because the watch of pods may be behind that of claims."""
    try:
        pod = await cluster.client.get(PODS, user["name"], claim["metadata"]["namespace"])
    except NotFoundError:
        return True
    return not uses(pod, user["uid"])


def uses(pod: JsonObject | None, uid: str) -> bool:
    """Whether the pod has this UID and still needs its claims: it has not ended, and was not deleted before it ran."""
    if pod is None or pod["metadata"]["uid"] != uid or is_finished(pod):
        return False
    return bool(pod["spec"].get("nodeName")) or not pod["metadata"].get("deletionTimestamp")

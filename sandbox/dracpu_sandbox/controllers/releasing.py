"""Claims are given up by pods that have ended or are gone; without users they lose their devices."""

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from dracpu_sandbox.client import NotFoundError
from dracpu_sandbox.controllers.controller import Cluster, Controller, Duty
from dracpu_sandbox.resources import CLAIMS, PODS, JsonObject
from dracpu_sandbox.scheduler.claims import allocation_of, has_finalizer, released, users, with_finalizer
from dracpu_sandbox.scheduler.world import is_finished


class ClaimReleaser(Controller):
    """Keeps reservedFor true, deallocates, and lets claims go that are being deleted."""

    name: ClassVar[str] = "resource_claim"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, cluster.pods, cluster.claims)

    def duties(self) -> Iterable[Duty]:
        for claim in self.cluster.claims.all():
            namespace, deleted = claim["metadata"]["namespace"], claim["metadata"].get("deletionTimestamp")
            pods = {user["uid"]: self.cluster.pods.get((namespace, user["name"])) for user in users(claim)}
            if any(not uses(pod, uid) for uid, pod in pods.items()):
                yield partial(self._release, claim)
            elif deleted and not pods and (has_finalizer(claim) or allocation_of(claim)):
                yield partial(self._let_go, claim)

    async def _release(self, claim: JsonObject) -> None:
        gone = {user["uid"] for user in users(claim) if await self._is_gone(claim, user)}
        if not gone:
            return
        left = released(claim, lambda user: user["uid"] not in gone)
        claim = await self._write(left, "status")
        if not users(claim) and has_finalizer(claim):
            await self._write(with_finalizer(claim, wanted=False))

    async def _let_go(self, claim: JsonObject) -> None:
        if allocation_of(claim):
            claim = await self._write(released(claim, lambda user: False), "status")
        if has_finalizer(claim):
            await self._write(with_finalizer(claim, wanted=False))

    async def _is_gone(self, claim: JsonObject, user: JsonObject) -> bool:
        """Asked of the server: a claim can be heard of before its pod."""
        try:
            pod = await self.cluster.client.get(PODS, user["name"], claim["metadata"]["namespace"])
        except NotFoundError:
            return True
        return not uses(pod, user["uid"])

    async def _write(self, claim: JsonObject, subresource: str = "") -> JsonObject:
        typed = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, **claim}
        written = await self.cluster.client.replace(CLAIMS, typed, subresource)
        self.cluster.claims.wrote(written)
        return written


def uses(pod: JsonObject | None, uid: str) -> bool:
    """Whether this is the pod with the UID, and it still needs its claims: neither ended nor deleted before it ran."""
    if pod is None or pod["metadata"]["uid"] != uid or is_finished(pod):
        return False
    return bool(pod["spec"].get("nodeName")) or not pod["metadata"].get("deletionTimestamp")

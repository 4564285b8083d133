"""Shows the owner of a claim its CPUs: writes them into the status of the ResourceClaim."""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

import structlog

from dracpu_agent.claims.grant import ClaimRef, CpuGrant
from dracpu_agent.cluster.client import ApiClient
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ConflictError, NotFoundError, UnavailableError
from dracpu_api.resources import RESOURCE_CLAIMS, JsonObject

log = structlog.stdlib.get_logger(__name__)


class DeviceStatusWriter:
    """Shows a claim's CPUs to its owner in status.devices[].data. Never on Prepare's path: `set` only notes it down.

    Server-side apply with the claim's UID, so that a claim made anew under the same name is not touched. What cannot
    succeed (the claim is gone, deallocated, or permissions are missing) is dropped; no claim waits for it.
    """

    def __init__(self, api: ApiClient, driver: str, *, backoff: Backoff | None = None) -> None:
        self._api = api
        self._driver = driver
        self._backoff = backoff or Backoff()
        self._pending: dict[str, JsonObject] = {}  # claim UID -> what to apply; the oldest first
        self._wake = asyncio.Event()

    def set(self, claim: ClaimRef, grants: Sequence[CpuGrant]) -> None:
        """The claim was prepared with these grants; a later call replaces what is still unwritten."""
        self._pending.pop(claim.uid, None)
        self._pending[claim.uid] = device_status(self._driver, claim, grants)
        self._wake.set()

    def forget(self, claim_uid: str) -> None:
        """The claim was unprepared: nothing needs to be written any more."""
        self._pending.pop(claim_uid, None)

    async def run(self) -> NoReturn:
        """Until cancelled; one write at a time, so that pods starting together find the API server free."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                await self._write(next(iter(self._pending)))

    async def _write(self, uid: str) -> None:
        body = self._pending[uid]
        metadata = body["metadata"]
        try:
            await self._api.apply(RESOURCE_CLAIMS, body, namespace=metadata["namespace"], subresource="status")
        except UnavailableError as error:
            await asyncio.sleep(self._backoff.next(error))
            if self._pending.get(uid) is body:  # others first: the trouble may be this claim's alone
                self._pending[uid] = self._pending.pop(uid)
            return
        except (NotFoundError, ConflictError):
            pass  # the claim is gone, or another one has its name
        except ApiError as error:
            claim = f"{metadata['namespace']}/{metadata['name']}"
            log.warning("the claim's status does not show its CPUs", claim=claim, error=error.message)
        self._backoff.reset()
        if self._pending.get(uid) is body:  # else it was replaced or forgotten meanwhile
            del self._pending[uid]


def device_status(driver: str, claim: ClaimRef, grants: Sequence[CpuGrant]) -> JsonObject:
    """What to apply to the claim's status; an entry is known by driver, pool, device and share."""
    return {
        "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
        "status": {
            "devices": [
                {"driver": driver, "pool": grant.pool, "device": grant.device}
                | ({"shareID": grant.share_id} if grant.share_id is not None else {})
                | {"data": {"cpuset": str(grant.cpus)}}
                for grant in grants
            ]
        },
    }

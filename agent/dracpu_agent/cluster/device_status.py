"""Writes what a claim was granted into the status of the ResourceClaim, for the claim's owner."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, NoReturn

import structlog

from dracpu_agent.claims.grant import ClaimRef, Grant
from dracpu_agent.cluster.client import FIELD_MANAGER, ApiClient
from dracpu_api import names
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ConflictError, InvalidError, NotFoundError, UnavailableError
from dracpu_api.resources import RESOURCE_CLAIMS, Json, JsonObject

REPEAT_SECONDS: Final = 5.0

log = structlog.stdlib.get_logger(__name__)


class DeviceStatusWriter:
    """Writes claims' grants to status.devices[].data in the background: `set` only queues, so Prepare does not wait.

    It uses server-side apply with the claim's UID, so that a new claim of the same name is not changed. A write that
    cannot succeed (the claim was deleted or deallocated, or permissions are missing) is dropped.

    Server-side apply writes the parameters of the claim and the data of other drivers anew, as JSON with sorted keys.
    The API server compares their text and takes this for a change, which it refuses, when a client has written them in
    another order. Then the entries are written by a JSON patch, which leaves that text as it is.

    An agent that ends before it has written a status does not keep the queue, so the next agent repeats the status of
    every held claim, with a pause before each. It does not read the claims first: the API server stores nothing and
    notifies nobody when the applied status is the current one, so the write costs no more than the read.
    """

    def __init__(
        self, api: ApiClient, driver: str, *, backoff: Backoff | None = None, pauses: Backoff | None = None
    ) -> None:
        self._api = api
        self._driver = driver
        # an apply deletes what its manager applied before, so each driver has its own; earlier versions used this one
        # for CPUs
        self._manager = FIELD_MANAGER if driver == names.DRIVER else f"{FIELD_MANAGER}-{driver}"
        self._backoff = backoff or Backoff()
        self._pauses = pauses or Backoff(REPEAT_SECONDS, REPEAT_SECONDS)
        self._pending: dict[str, JsonObject] = {}  # claim UID -> the object to apply, the oldest first
        self._repeats: dict[str, JsonObject] = {}  # likewise, while nothing is pending
        self._wake = asyncio.Event()

    def set(self, claim: ClaimRef, grants: Sequence[Grant]) -> None:
        """Queues the grants of a prepared claim; replaces what is queued for the claim."""
        self.forget(claim.uid)
        self._pending[claim.uid] = device_status(self._driver, claim, grants)
        self._wake.set()

    def repeat(self, claim: ClaimRef, grants: Sequence[Grant]) -> None:
        """Queues the grants of a claim that an earlier agent has prepared, and perhaps not written."""
        self._repeats[claim.uid] = device_status(self._driver, claim, grants)
        self._wake.set()

    def forget(self, claim_uid: str) -> None:
        """Removes an unprepared claim from the queue."""
        self._pending.pop(claim_uid, None)
        self._repeats.pop(claim_uid, None)

    async def run(self) -> NoReturn:
        """Runs until cancelled; writes one status at a time, so that reads of claims for other pods do not wait."""
        while True:
            while self._pending:
                await self._write(next(iter(self._pending)))
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pauses.next() if self._repeats else None):
                    await self._wake.wait()
                    continue
            if self._repeats:  # not forgotten meanwhile
                uid = next(iter(self._repeats))
                self._pending[uid] = self._repeats.pop(uid)

    async def _write(self, uid: str) -> None:
        body = self._pending[uid]
        metadata = body["metadata"]
        try:
            await self._send(metadata["namespace"], metadata["name"], body)
        except UnavailableError as error:
            await asyncio.sleep(self._backoff.next(error))
            if self._pending.get(uid) is body:  # to the end, as the error may concern only this claim
                self._pending[uid] = self._pending.pop(uid)
            return
        except (NotFoundError, ConflictError):
            pass  # the claim was deleted, or another one has its name
        except ApiError as error:
            claim = f"{metadata['namespace']}/{metadata['name']}"
            log.warning(
                "cannot write what a claim was granted into its status",
                driver=self._driver,
                claim=claim,
                error=error.message,
            )
        self._backoff.reset()
        if self._pending.get(uid) is body:  # unless it was replaced or forgotten meanwhile
            del self._pending[uid]

    async def _send(self, namespace: str, name: str, body: JsonObject) -> None:
        try:
            await self._api.apply(
                RESOURCE_CLAIMS, body, namespace=namespace, subresource="status", manager=self._manager
            )
        except InvalidError:
            claim = await self._api.get(RESOURCE_CLAIMS, name, namespace=namespace)
            changes = entry_changes(self._driver, claim, body["status"]["devices"])
            if not changes or claim["metadata"]["uid"] != body["metadata"]["uid"]:
                return
            try:
                await self._api.json_patch(RESOURCE_CLAIMS, name, changes, namespace=namespace, subresource="status")
            except ConflictError as error:  # it has changed since it was read
                raise UnavailableError(error.message, reason=error.reason) from error


def entry_changes(driver: str, claim: Json, wanted: Sequence[Json]) -> list[JsonObject]:
    """The JSON patch that replaces a driver's entries in the status of a claim; empty when it has them. The patch is
    valid only for the version of the claim that it was made from."""
    entries = (claim.get("status") or {}).get("devices") or []
    present = [{key: value for key, value in entry.items() if value is not None} for entry in entries]
    ours = [index for index, entry in enumerate(present) if entry["driver"] == driver]
    if [present[index] for index in ours] == list(wanted):
        return []
    changes: list[JsonObject] = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": claim["metadata"]["resourceVersion"]},
        *({"op": "remove", "path": f"/status/devices/{index}"} for index in reversed(ours)),
    ]
    if entries:
        changes += ({"op": "add", "path": "/status/devices/-", "value": entry} for entry in wanted)
    else:
        changes.append({"op": "add", "path": "/status/devices", "value": list(wanted)})
    return changes


def device_status(driver: str, claim: ClaimRef, grants: Sequence[Grant]) -> JsonObject:
    """The claim with the status to apply; driver, pool, device and share identify an entry."""
    return {
        "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
        "status": {
            "devices": [
                {"driver": driver, "pool": grant.pool, "device": grant.device}
                | ({"shareID": grant.share_id} if grant.share_id is not None else {})
                | {"data": grant.data()}
                for grant in grants
            ]
        },
    }

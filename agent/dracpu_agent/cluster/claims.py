"""Reads ResourceClaims, and the PCIe roots of other drivers' devices that a claim's CPUs should be close to."""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import structlog

from dracpu_agent.claims.alignment import alignments_of, matched, roots_of
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.errors import ClaimError, NotReadyError
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, NotFoundError, UnavailableError
from dracpu_api.resources import RESOURCE_CLAIMS, RESOURCE_SLICES, JsonObject

NEIGHBOURS_SECONDS: Final = 2.0  # of the kubelet's 45 s, as alignment is only a preference
ATTEMPTS_AT_LEAST: Final = 2  # in the time of a read with retries, for an API server that accepts a request and hangs
FIRST_WAIT: Final = 0.25  # seconds; it doubles

log = structlog.get_logger("claims")


class ClaimMissingError(ClaimError):
    """The kubelet requests a claim that does not exist at the API server."""


class ApiClaimReader:
    """Reads claims for one node."""

    def __init__(
        self,
        api: ApiClient,
        node_name: str,
        neighbours_seconds: float = NEIGHBOURS_SECONDS,
        *,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._neighbours_seconds = neighbours_seconds
        self._jitter = jitter  # of the waits between attempts

    async def read(self, ref: ClaimRef, seconds: float) -> dict[str, Any]:
        """The claim object; raises ClaimMissingError or NotReadyError."""
        try:
            return await self._get(ref, seconds)
        except ApiError as error:
            _refuse(ref, error)

    async def read_with_retries(self, ref: ClaimRef, seconds: float) -> dict[str, Any]:
        """Like `read`, but repeats the request within this time after errors that pass by themselves.

        Other refusals are final: permissions, for example, are missing until somebody changes them, and their absence
        should be seen at once. The kubelet comes back anyway, but not before 60 s have passed.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        backoff = Backoff(FIRST_WAIT, cap=seconds, jitter=self._jitter)
        while True:
            left = ends - loop.time()
            try:
                return await self._get(ref, min(left, seconds / ATTEMPTS_AT_LEAST))
            except UnavailableError as error:
                delay = backoff.next(error)
                if loop.time() + delay >= ends:
                    _refuse(ref, error)
                log.info("reading a claim failed, trying again", claim=str(ref), error=str(error), seconds=delay)
            except ApiError as error:
                _refuse(ref, error)
            await asyncio.sleep(delay)

    async def read_if_there(self, ref: ClaimRef, seconds: float) -> dict[str, Any] | None:
        """The claim object, or None if there is no claim of that name; raises NotReadyError."""
        try:
            return await self._get(ref, seconds)
        except NotFoundError:
            return None
        except ApiError as error:
            _refuse(ref, error)

    async def roots_beside(self, claim: Mapping[str, Any]) -> Mapping[str, frozenset[str]]:
        """For each request, the PCIe roots that it was matched on with devices of other drivers. Roots that cannot be
        read in time are left out: the scheduler has already chosen a CPU device that fulfils the constraint."""
        alignments = alignments_of(claim)
        slices = await self._slices_of({other.driver for alignment in alignments for other in alignment.neighbours})
        roots: dict[str, list[frozenset[str]]] = {}
        for alignment in alignments:
            found = [roots_of(slices.get(other.driver, ()), other) for other in alignment.neighbours]
            for request in alignment.requests:
                roots.setdefault(request, []).extend(found)
        return {request: matched(found) for request, found in roots.items()}

    async def _get(self, ref: ClaimRef, seconds: float) -> JsonObject:
        return await self._api.get(RESOURCE_CLAIMS, ref.name, namespace=ref.namespace, seconds=seconds)

    async def _slices_of(self, drivers: Collection[str]) -> Mapping[str, Sequence[JsonObject]]:
        """The slices of each driver on this node, as far as they can be read within the common time limit."""
        slices: dict[str, Sequence[JsonObject]] = {}
        failure = ""
        try:
            async with asyncio.timeout(self._neighbours_seconds):
                for driver in sorted(drivers):
                    on_node = f"spec.nodeName={self._node_name},spec.driver={driver}"
                    try:
                        found = await self._api.list(RESOURCE_SLICES, field_selector=on_node)
                        slices[driver] = found.get("items") or ()
                    except ApiError as error:
                        failure = error.message
        except TimeoutError:
            failure = f"no answer within {self._neighbours_seconds:g} s"
        if failure:
            log.warning("cannot read PCIe roots of the claim's other devices, its CPUs may not be close", error=failure)
        return slices


def _refuse(ref: ClaimRef, error: ApiError) -> NoReturn:
    if isinstance(error, NotFoundError):
        raise ClaimMissingError(f"claim {ref} does not exist any more: delete the pod that refers to it") from error
    raise NotReadyError(f"claim {ref} cannot be read: {error}") from error

"""Reads ResourceClaims, and the PCIe roots of the other drivers' devices that a claim is aligned with."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import structlog

from dracpu_agent.claims.alignment import alignments_of, matched, roots_of
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.errors import ClaimError, NotReadyError
from dracpu_api.errors import ApiError, NotFoundError
from dracpu_api.resources import RESOURCE_CLAIMS, RESOURCE_SLICES, JsonObject

NEIGHBOURS_SECONDS: Final = 2.0  # a preference is not worth more of the kubelet's 45 s

log = structlog.get_logger("claims")


class ClaimMissingError(ClaimError):
    """The kubelet asks for a claim that the API server does not have."""


class ApiClaimReader:
    """One node's view."""

    def __init__(self, api: ApiClient, node_name: str, neighbours_seconds: float = NEIGHBOURS_SECONDS) -> None:
        self._api = api
        self._node_name = node_name
        self._neighbours_seconds = neighbours_seconds

    async def read(self, ref: ClaimRef, seconds: float) -> dict[str, Any]:
        """The claim object."""
        claim = await self.read_if_there(ref, seconds)
        if claim is None:
            raise ClaimMissingError(f"claim {ref} does not exist any more: delete the pod that refers to it")
        return claim

    async def read_if_there(self, ref: ClaimRef, seconds: float) -> dict[str, Any] | None:
        """The claim object; None when there is none of that name."""
        try:
            return await self._api.get(RESOURCE_CLAIMS, ref.name, namespace=ref.namespace, seconds=seconds)
        except NotFoundError:
            return None
        except ApiError as error:
            raise NotReadyError(f"claim {ref} cannot be read: {error}") from error

    async def roots_beside(self, claim: Mapping[str, Any]) -> Mapping[str, frozenset[str]]:
        """Request -> the PCIe roots that it was matched on with devices of other drivers. What is not known in time is
        left out: the CPUs are in the right device all the same."""
        alignments = alignments_of(claim)
        slices = await self._slices_of({other.driver for alignment in alignments for other in alignment.neighbours})
        roots: dict[str, list[frozenset[str]]] = {}
        for alignment in alignments:
            found = [roots_of(slices.get(other.driver, ()), other) for other in alignment.neighbours]
            for request in alignment.requests:
                roots.setdefault(request, []).extend(found)
        return {request: matched(found) for request, found in roots.items()}

    async def _slices_of(self, drivers: Collection[str]) -> Mapping[str, Sequence[JsonObject]]:
        """Driver -> its slices on this node, as far as they can be read in the time that all of them have together."""
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
            log.warning("PCIe roots of the claim's other devices not found, its CPUs may be far", error=failure)
        return slices

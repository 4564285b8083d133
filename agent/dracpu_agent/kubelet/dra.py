"""The DRAPlugin service, v1 and v1beta1: decodes the kubelet's calls and encodes the answers, decides nothing."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import grpc

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_agent.kubelet.operations import ClaimOperations, Outcome, Verb
from dracpu_agent.kubelet.proto.kubelet_dra_pb2 import (
    Claim,
    Device,
    NodePrepareResourceResponse,
    NodePrepareResourcesRequest,
    NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse,
    NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
)

VERSIONS: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin")  # kubelet: uses the first that it supports
SERVICE_V1: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
SERVICE_V1BETA1: Final = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"
CALL_SECONDS: Final = 40.0  # kubelet: a call has 45 s; answering before that names the slow claim


class DraPlugin:
    """Answers the kubelet's calls; the claims of one call are processed concurrently."""

    def __init__(self, operations: ClaimOperations, call_seconds: float = CALL_SECONDS) -> None:
        self._operations = operations
        self._call_seconds = call_seconds

    def services(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """The gRPC handlers for the data socket."""
        return (
            self._service(SERVICE_V1, share_ids=True),
            self._service(SERVICE_V1BETA1, share_ids=False),
        )

    def _service(self, name: str, *, share_ids: bool) -> grpc.GenericRpcHandler:
        async def prepare(request: NodePrepareResourcesRequest, _context: object) -> NodePrepareResourcesResponse:
            outcomes = await self._outcomes("prepare", request.claims)
            return NodePrepareResourcesResponse(
                claims={uid: _prepared(outcome, share_ids=share_ids) for uid, outcome in outcomes.items()}
            )

        async def unprepare(request: NodeUnprepareResourcesRequest, _context: object) -> NodeUnprepareResourcesResponse:
            outcomes = await self._outcomes("unprepare", request.claims)
            return NodeUnprepareResourcesResponse(
                claims={uid: NodeUnprepareResourceResponse(error=outcome.error) for uid, outcome in outcomes.items()}
            )

        methods = {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                prepare, NodePrepareResourcesRequest.FromString, NodePrepareResourcesResponse.SerializeToString
            ),
            "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                unprepare, NodeUnprepareResourcesRequest.FromString, NodeUnprepareResourcesResponse.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(name, methods)

    async def _outcomes(self, verb: Verb, claims: Iterable[Claim]) -> Mapping[str, Outcome]:
        """Exactly one outcome for each claim: the kubelet fails the pod when one is missing or was not requested."""
        references = [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in claims]
        tasks = {claim.uid: self._operations.request(verb, claim) for claim in references}
        if tasks:
            # `wait` cancels the tasks neither when this call is cancelled nor when the timeout expires.
            await asyncio.wait(tasks.values(), timeout=self._call_seconds)
        return {claim.uid: self._outcome_now(verb, claim, tasks[claim.uid]) for claim in references}

    def _outcome_now(self, verb: Verb, claim: ClaimRef, task: asyncio.Task[Outcome]) -> Outcome:
        if not task.done():
            waited = f"{self._call_seconds:g} s"
            return Outcome(
                error=f"cannot {verb} claim {claim} within {waited}; the agent continues, the kubelet retries"
            )
        if task.cancelled():
            return Outcome(error=f"cannot {verb} claim {claim}: the agent is stopping; the kubelet retries")
        return task.result()


def _prepared(outcome: Outcome, *, share_ids: bool) -> NodePrepareResourceResponse:
    if outcome.error:
        return NodePrepareResourceResponse(error=outcome.error)
    return NodePrepareResourceResponse(devices=[_device(device, share_ids=share_ids) for device in outcome.devices])


def _device(device: PreparedDevice, *, share_ids: bool) -> Device:
    return Device(
        # kubelet: pods refer to requests, never to the sub-requests of a prioritized list
        request_names=dict.fromkeys(request.partition("/")[0] for request in device.requests),
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id if share_ids else None,
    )

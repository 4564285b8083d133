"""The kubelet's pod-resources socket, for tests of the agent alone.

async with pod_resources(root, cpus=[2, 3]):      # a kubelet whose CPU manager is static and may assign CPUs 2-3
async with pod_resources(root, memory=True):      # a kubelet whose memory manager is static
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import grpc.aio

from dracpu_agent.kubelet.proto.kubelet_podresources_pb2 import (
    AllocatableResourcesRequest,
    AllocatableResourcesResponse,
    ContainerMemory,
)


@contextlib.asynccontextmanager
async def pod_resources(root: Path, cpus: Sequence[int] = (), *, memory: bool = False) -> AsyncIterator[None]:
    """Serves the socket of one kubelet below its root; another one afterwards stands for a restarted kubelet."""

    async def answer(_request: AllocatableResourcesRequest, _context: object) -> AllocatableResourcesResponse:
        return AllocatableResourcesResponse(cpu_ids=cpus, memory=[ContainerMemory()] if memory else [])

    method = grpc.unary_unary_rpc_method_handler(
        answer, AllocatableResourcesRequest.FromString, AllocatableResourcesResponse.SerializeToString
    )
    handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"GetAllocatableResources": method})
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    folder = root / "pod-resources"
    folder.mkdir(exist_ok=True)
    socket = folder / "kubelet.sock"
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)
        socket.unlink(missing_ok=True)

"""Asks the kubelet, on its pod-resources socket, whether its own managers assign CPUs and memory to containers.

They do so only with the policy static. That of the CPU manager would silently override this driver's pinning. The
kubelet's state files name the policies as well, but they cannot be mounted: the kubelet replaces them, so that a mount
keeps showing the former file, and their folder has the secrets of all pods.
"""

from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.kubelet.proto.kubelet_podresources_pb2 import (
    AllocatableResourcesRequest,
    AllocatableResourcesResponse,
)
from dracpu_api.errors import DriverError

METHOD: Final = "/v1.PodResourcesLister/GetAllocatableResources"
ANSWER_SECONDS: Final = 10.0


class PodResourcesError(DriverError):
    """The kubelet does not answer on its pod-resources socket."""


class PodResources:
    """The pod-resources socket of the kubelet with this root directory."""

    def __init__(self, kubelet_root: Path) -> None:
        self._socket = kubelet_root / "pod-resources" / "kubelet.sock"

    async def assigns_cpus(self) -> bool | None:
        """Returns True if the kubelet assigns CPUs to containers, and None if it has not created its socket yet. Raises
        PodResourcesError."""
        answer = await self._ask()
        return None if answer is None else bool(answer.cpu_ids)

    async def assigns_memory(self) -> bool | None:
        """Returns True if the kubelet assigns memory of NUMA nodes to containers, likewise."""
        answer = await self._ask()
        return None if answer is None else bool(answer.memory)

    async def _ask(self) -> AllocatableResourcesResponse | None:
        """Each call connects anew, because the kubelet replaces the socket when it starts."""
        try:
            if not await in_file_thread(self._socket.exists):
                return None
        except OSError as error:
            raise PodResourcesError(f"cannot look for the kubelet's socket {self._socket}: {error}") from error
        async with grpc.aio.insecure_channel(f"unix:{self._socket}") as channel:
            ask = channel.unary_unary(
                METHOD,
                request_serializer=AllocatableResourcesRequest.SerializeToString,
                response_deserializer=AllocatableResourcesResponse.FromString,
            )
            try:
                answer: AllocatableResourcesResponse = await ask(AllocatableResourcesRequest(), timeout=ANSWER_SECONDS)
            except grpc.aio.AioRpcError as error:
                raise PodResourcesError(f"the kubelet does not answer on {self._socket}: {error.details()}") from error
        return answer

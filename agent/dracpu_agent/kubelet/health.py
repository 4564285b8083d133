"""The DRAResourceHealth stream, v1 and v1alpha1: the kubelet shows the health of a pod's devices in its status."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import grpc
import grpc.aio

from dracpu_agent.kubelet.proto import kubelet_health_pb2 as messages

VERSIONS: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")  # also the names of the gRPC services
LEASE_SECONDS: Final = 30  # kubelet: a device's health is unknown after this time without a message
RESEND_SECONDS: Final = 10.0  # a third of the lease, so that two messages may be late


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The health of one device; the message says what is wrong with it."""

    pool: str
    device: str
    healthy: bool
    message: str = ""


class HealthSource(Protocol):
    """Provides the health of the devices."""

    def snapshot(self) -> Sequence[DeviceHealth]:
        """The health of all devices: the kubelet shows a device that is absent as unknown."""
        ...


class HealthStreams:
    """Sends the health of all devices on each stream: at once, on each change, and again before the lease expires."""

    def __init__(self, source: HealthSource, resend_seconds: float = RESEND_SECONDS) -> None:
        self._source = source
        self._resend_seconds = resend_seconds
        self._wake_ups: set[asyncio.Event] = set()  # an event for each stream
        self._closed = False

    def services(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """The gRPC handlers for the data socket."""
        method = grpc.unary_stream_rpc_method_handler(
            self._watch,
            messages.NodeWatchResourcesRequest.FromString,
            messages.NodeWatchResourcesResponse.SerializeToString,
        )
        return tuple(grpc.method_handlers_generic_handler(name, {"NodeWatchResources": method}) for name in VERSIONS)

    def changed(self) -> None:
        """Sends a new message, as some device's health may have changed. Changes during a send become one message."""
        for wake_up in self._wake_ups:
            wake_up.set()

    def close(self) -> None:
        """Ends all streams, so that the server can stop without aborting them."""
        self._closed = True
        self.changed()

    async def _watch(
        self, _request: messages.NodeWatchResourcesRequest, context: "grpc.aio.ServicerContext[object, object]"
    ) -> None:
        wake_up = asyncio.Event()
        self._wake_ups.add(wake_up)
        try:
            while not self._closed:
                wake_up.clear()  # before the snapshot, so that no change is lost between the two
                await context.write(_message(self._source.snapshot()))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._resend_seconds):
                        await wake_up.wait()
        finally:
            self._wake_ups.discard(wake_up)


def _message(devices: Sequence[DeviceHealth]) -> messages.NodeWatchResourcesResponse:
    now = int(time.time())
    return messages.NodeWatchResourcesResponse(
        devices=[
            messages.DeviceHealth(
                device=messages.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
                health=messages.HEALTHY if device.healthy else messages.UNHEALTHY,
                last_updated_time=now,
                health_check_timeout_seconds=LEASE_SECONDS,
                message=device.message,
            )
            for device in devices
        ]
    )

"""The DRAResourceHealth stream, v1 and v1alpha1: the kubelet shows in a pod's status how its devices are."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import grpc
import grpc.aio

from dracpu_agent.kubelet.proto import kubelet_health_pb2 as messages

VERSIONS: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")  # their names are those of the services
LEASE_SECONDS: Final = 30  # kubelet: after it a device's health is unknown
RESEND_SECONDS: Final = 10.0  # a third of the lease: two messages may be late


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """How one device is. A message says what is wrong with it."""

    pool: str
    device: str
    healthy: bool
    message: str = ""


class HealthSource(Protocol):
    """Who knows how the devices are."""

    def snapshot(self) -> Sequence[DeviceHealth]:
        """All devices, each time: one that is absent becomes unknown."""
        ...


class HealthStreams:
    """Sends every watching kubelet the whole picture: at once, on each change, and again before the lease ends."""

    def __init__(self, source: HealthSource, resend_seconds: float = RESEND_SECONDS) -> None:
        self._source = source
        self._resend_seconds = resend_seconds
        self._wake_ups: set[asyncio.Event] = set()  # one for each stream
        self._closed = False

    def services(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """What to serve on the data socket."""
        method = grpc.unary_stream_rpc_method_handler(
            self._watch,
            messages.NodeWatchResourcesRequest.FromString,
            messages.NodeWatchResourcesResponse.SerializeToString,
        )
        return tuple(grpc.method_handlers_generic_handler(name, {"NodeWatchResources": method}) for name in VERSIONS)

    def changed(self) -> None:
        """Somebody's health may have changed. Cheap; changes while a message is on its way become one message."""
        for wake_up in self._wake_ups:
            wake_up.set()

    def close(self) -> None:
        """Ends all streams, so that the server can stop without breaking them off."""
        self._closed = True
        self.changed()

    async def _watch(
        self, _request: messages.NodeWatchResourcesRequest, context: "grpc.aio.ServicerContext[object, object]"
    ) -> None:
        wake_up = asyncio.Event()
        self._wake_ups.add(wake_up)
        try:
            while not self._closed:
                wake_up.clear()  # before the snapshot: no change is lost between the two
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

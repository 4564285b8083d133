"""The kubelet's side of a DRA plugin's sockets: registration, preparing and unpreparing claims, device health.

    plugin = await register(root / "plugins_registry/dra.cpu-reg.sock")
    devices = await plugin.prepare_one(claim)           # raises KubeletError with the driver's text
    async for devices in plugin.watch_health(): ...
    await plugin.close()

Deadlines and checks are those of the real kubelet; calls are real gRPC over real sockets.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_agent.kubelet.proto import kubelet_dra_pb2 as dra
from dracpu_agent.kubelet.proto import kubelet_health_pb2 as health
from dracpu_agent.kubelet.proto import kubelet_registration_pb2 as registration
from dracpu_sandbox.errors import SandboxError

DRA_SERVICES: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
HEALTH_SERVICES: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
KNOWN_SERVICES: Final = DRA_SERVICES + HEALTH_SERVICES
GET_INFO_SECONDS: Final = 1.0  # kubelet: timeout of GetInfo
NOTIFY_SECONDS: Final = 5.0  # kubelet: timeout of NotifyRegistrationStatus
CLAIM_SECONDS: Final = 45.0  # kubelet: timeout of NodePrepareResources and NodeUnprepareResources

# A plugin that reuses the socket of its predecessor must not wait for the reconnection of the old channel.
_CHANNEL_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 1000))


class KubeletError(SandboxError):
    """A call to a driver failed; the real kubelet logs the message or shows it on the pod."""


async def register(socket: Path, supported: Sequence[str] = KNOWN_SERVICES, driver: str = "") -> "RegisteredPlugin":
    """Reads the name and the services of the plugin behind a registration socket, and reports the outcome to it.

    `supported` are the services that this kubelet supports; `driver`, if given, must be the plugin's name.
    """
    channel = _dial(socket)
    try:
        info = await _unary(
            channel, "/pluginregistration.Registration/GetInfo", registration.PluginInfo, GET_INFO_SECONDS
        )(registration.InfoRequest())
        problem = _problem(info, driver, supported)
        notify = _unary(
            channel,
            "/pluginregistration.Registration/NotifyRegistrationStatus",
            registration.RegistrationStatusResponse,
            NOTIFY_SECONDS,
        )
        await notify(registration.RegistrationStatus(plugin_registered=not problem, error=problem))
    except grpc.aio.AioRpcError as error:
        raise KubeletError(f"plugin at {socket}: {error.details()}") from error
    finally:
        await channel.close(None)
    if problem:
        raise KubeletError(problem)
    common = [service for service in info.supported_versions if service in supported]
    return RegisteredPlugin(
        info,
        _dial(Path(info.endpoint)),
        dra_service=next(service for service in common if service in DRA_SERVICES),  # kubelet: the plugin's order
        health_service=next((service for service in HEALTH_SERVICES if service in common), ""),  # the kubelet's order
    )


class RegisteredPlugin:
    """A driver that the kubelet has registered."""

    def __init__(
        self, info: registration.PluginInfo, channel: grpc.aio.Channel, dra_service: str, health_service: str
    ) -> None:
        self.info = info
        self.dra_service = dra_service  # the version that the kubelet chose
        self.health_service = health_service
        self._channel = channel

    async def close(self) -> None:
        """Closes the connection, and ends every call on it."""
        await self._channel.close(None)

    async def prepare(
        self, *claims: ClaimRef, seconds: float = CLAIM_SECONDS
    ) -> Mapping[str, dra.NodePrepareResourceResponse]:
        """Prepares claims in one call; returns the answers by claim UID."""
        call = _unary(self._channel, self._method("NodePrepareResources"), dra.NodePrepareResourcesResponse, seconds)
        answer = await call(dra.NodePrepareResourcesRequest(claims=[_claim(claim) for claim in claims]))
        _exactly(claims, answer.claims)
        return dict(answer.claims)

    async def unprepare(self, *claims: ClaimRef, seconds: float = CLAIM_SECONDS) -> Mapping[str, str]:
        """Unprepares claims in one call; returns the errors by claim UID, "" for success."""
        method = self._method("NodeUnprepareResources")
        call = _unary(self._channel, method, dra.NodeUnprepareResourcesResponse, seconds)
        answer = await call(dra.NodeUnprepareResourcesRequest(claims=[_claim(claim) for claim in claims]))
        _exactly(claims, answer.claims)
        return {uid: outcome.error for uid, outcome in answer.claims.items()}

    async def prepare_one(self, claim: ClaimRef, seconds: float = CLAIM_SECONDS) -> tuple[PreparedDevice, ...]:
        """Prepares one claim; raises an error of the driver as KubeletError."""
        answer = (await self.prepare(claim, seconds=seconds))[claim.uid]
        if answer.error:
            raise KubeletError(answer.error)
        return prepared_devices(answer)

    async def unprepare_one(self, claim: ClaimRef, seconds: float = CLAIM_SECONDS) -> None:
        """Unprepares one claim; raises an error of the driver as KubeletError."""
        error = (await self.unprepare(claim, seconds=seconds))[claim.uid]
        if error:
            raise KubeletError(error)

    async def watch_health(self) -> AsyncGenerator[list[health.DeviceHealth]]:
        """Yields each message of the driver until the driver ends the stream."""
        stream = self._channel.unary_stream(
            f"/{self.health_service}/NodeWatchResources",
            request_serializer=health.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=health.NodeWatchResourcesResponse.FromString,
        )(health.NodeWatchResourcesRequest())
        try:
            async for message in stream:
                yield list(message.devices)
        finally:
            stream.cancel()

    async def watch_connection(self, changed: Callable[[bool], None]) -> None:
        """Reports each change of the connection while the channel is open; reconnects."""
        while (state := self._channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.SHUTDOWN:
            changed(state is grpc.ChannelConnectivity.READY)
            await self._channel.wait_for_state_change(state)

    def _method(self, name: str) -> str:
        return f"/k8s.io.kubelet.pkg.apis.dra.{self.dra_service}/{name}"


def prepared_devices(answer: dra.NodePrepareResourceResponse) -> tuple[PreparedDevice, ...]:
    """Returns the devices of one claim."""
    return tuple(
        PreparedDevice(
            requests=tuple(device.request_names),
            pool=device.pool_name,
            device=device.device_name,
            share_id=device.share_id if device.HasField("share_id") else None,
            cdi_ids=tuple(device.cdi_device_ids),
        )
        for device in answer.devices
    )


def _problem(info: registration.PluginInfo, driver: str, supported: Sequence[str]) -> str:
    if info.type != "DRAPlugin":
        return f"plugin type {info.type!r} is not DRAPlugin"
    if driver and info.name != driver:
        return f"plugin name {info.name!r} is not {driver!r}"
    if not info.endpoint.startswith("/"):
        return f"endpoint {info.endpoint!r} is not an absolute path"
    if not any(service in supported for service in info.supported_versions if service in DRA_SERVICES):
        return f"none of {list(info.supported_versions)} is supported"
    return ""


def _dial(socket: Path) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"unix:{socket}", options=_CHANNEL_OPTIONS)


def _unary(
    channel: grpc.aio.Channel, method: str, answer: type[Any], seconds: float
) -> Callable[[Any], Awaitable[Any]]:
    call = channel.unary_unary(
        method, request_serializer=lambda message: message.SerializeToString(), response_deserializer=answer.FromString
    )

    async def send(request: Any) -> Any:
        try:
            return await call(request, timeout=seconds)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # grpc cancels the calls of a closed channel in the same way as the calls of a cancelled task
            raise KubeletError(f"{method.rpartition('/')[2]}: the plugin was deregistered during the call") from error

    return send


def _claim(claim: ClaimRef) -> dra.Claim:
    return dra.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _exactly(asked: Sequence[ClaimRef], answered: Mapping[str, object]) -> None:
    expected = {claim.uid for claim in asked}  # kubelet: a missing or unknown UID fails the pod
    if expected != set(answered):
        raise KubeletError(f"requested claims {sorted(expected)}, but the driver answered for {sorted(answered)}")

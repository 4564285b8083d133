"""The kubelet, as far as a DRA driver can tell: it finds plugins, registers them, hands out claims, watches devices.

    with kubelet_root() as root:
        async with FakeKubelet(root) as kubelet:
            plugin = await kubelet.register("dra.cpu")          # waits for the driver's socket
            devices = await plugin.prepare_one(claim)           # raises KubeletError with the driver's text
            async for devices in plugin.watch_health(): ...

Its deadlines and its checks are those of the real one; its calls are real gRPC over real sockets.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import grpc
import grpc.aio

from dracpu_agent.claims.model import ClaimRef, PreparedDevice
from dracpu_agent.kubelet.proto import kubelet_dra_pb2 as dra
from dracpu_agent.kubelet.proto import kubelet_health_pb2 as health
from dracpu_agent.kubelet.proto import kubelet_registration_pb2 as registration

DRA_SERVICES: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
HEALTH_SERVICES: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
GET_INFO_SECONDS: Final = 1.0
NOTIFY_SECONDS: Final = 5.0
CLAIM_SECONDS: Final = 45.0


class KubeletError(Exception):
    """What the kubelet would log, or show on the pod."""


@contextmanager
def kubelet_root() -> Iterator[Path]:
    """An empty root with a path so short that sockets fit below it, which pytest's tmp_path is not."""
    with tempfile.TemporaryDirectory(prefix="k") as root:
        yield Path(root)


class FakeKubelet:
    """A kubelet of some version: `knows` are the services that it speaks. A restart is a second FakeKubelet."""

    def __init__(self, root: Path, knows: Sequence[str] = DRA_SERVICES + HEALTH_SERVICES) -> None:
        self._registry = root / "plugins_registry"
        self._knows = knows
        self._channels: list[grpc.aio.Channel] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels:
            await channel.close(None)

    async def register(self, driver: str, seconds: float = 10.0) -> "RegisteredPlugin":
        """Waits for the driver's registration socket, and goes through the registration as the kubelet does."""
        socket = self._registry / f"{driver}-reg.sock"
        await _until(socket.is_socket, seconds, f"no socket {socket}")
        channel = self._dial(socket)
        info = await _unary(
            channel, "/pluginregistration.Registration/GetInfo", registration.PluginInfo, GET_INFO_SECONDS
        )(registration.InfoRequest())
        problem = self._problem(info, driver)
        notify = _unary(
            channel,
            "/pluginregistration.Registration/NotifyRegistrationStatus",
            registration.RegistrationStatusResponse,
            NOTIFY_SECONDS,
        )
        await notify(registration.RegistrationStatus(plugin_registered=not problem, error=problem))
        if problem:
            raise KubeletError(problem)
        common = [service for service in info.supported_versions if service in self._knows]
        return RegisteredPlugin(
            info,
            self._dial(Path(info.endpoint)),
            dra_service=next(service for service in common if service in DRA_SERVICES),  # the plugin's order
            health_service=next((service for service in HEALTH_SERVICES if service in common), ""),  # the kubelet's
        )

    async def deregistered(self, driver: str, seconds: float = 10.0) -> None:
        """Waits until the driver has taken its registration socket away."""
        socket = self._registry / f"{driver}-reg.sock"
        await _until(lambda: not socket.exists(), seconds, f"{socket} is still there")

    def _dial(self, socket: Path) -> grpc.aio.Channel:
        channel = grpc.aio.insecure_channel(f"unix:{socket}")
        self._channels.append(channel)
        return channel

    def _problem(self, info: registration.PluginInfo, driver: str) -> str:
        if info.type != "DRAPlugin":
            return f"plugin type {info.type!r} is not DRAPlugin"
        if info.name != driver:
            return f"plugin name {info.name!r} is not {driver!r}"
        if not info.endpoint.startswith("/"):
            return f"endpoint {info.endpoint!r} is not an absolute path"
        if not any(service in self._knows for service in info.supported_versions if service in DRA_SERVICES):
            return f"none of {list(info.supported_versions)} is supported"
        return ""


class RegisteredPlugin:
    """A driver that the kubelet has registered."""

    def __init__(
        self, info: registration.PluginInfo, channel: grpc.aio.Channel, dra_service: str, health_service: str
    ) -> None:
        self.info = info
        self.dra_service = dra_service  # the one that the kubelet chose
        self.health_service = health_service
        self._channel = channel

    async def prepare(
        self, *claims: ClaimRef, seconds: float = CLAIM_SECONDS
    ) -> Mapping[str, dra.NodePrepareResourceResponse]:
        """One call for all claims; the answers by claim UID."""
        call = _unary(self._channel, self._method("NodePrepareResources"), dra.NodePrepareResourcesResponse, seconds)
        answer = await call(dra.NodePrepareResourcesRequest(claims=[_claim(claim) for claim in claims]))
        _exactly(claims, answer.claims)
        return dict(answer.claims)

    async def unprepare(self, *claims: ClaimRef, seconds: float = CLAIM_SECONDS) -> Mapping[str, str]:
        """One call for all claims; the error texts by claim UID, "" where all is well."""
        method = self._method("NodeUnprepareResources")
        call = _unary(self._channel, method, dra.NodeUnprepareResourcesResponse, seconds)
        answer = await call(dra.NodeUnprepareResourcesRequest(claims=[_claim(claim) for claim in claims]))
        _exactly(claims, answer.claims)
        return {uid: outcome.error for uid, outcome in answer.claims.items()}

    async def prepare_one(self, claim: ClaimRef, seconds: float = CLAIM_SECONDS) -> tuple[PreparedDevice, ...]:
        """A pod with one claim; an error of the driver fails it."""
        answer = (await self.prepare(claim, seconds=seconds))[claim.uid]
        if answer.error:
            raise KubeletError(answer.error)
        return tuple(_prepared(device) for device in answer.devices)

    async def unprepare_one(self, claim: ClaimRef, seconds: float = CLAIM_SECONDS) -> None:
        """The last pod of a claim has ended."""
        error = (await self.unprepare(claim, seconds=seconds))[claim.uid]
        if error:
            raise KubeletError(error)

    async def watch_health(self) -> AsyncGenerator[list[health.DeviceHealth]]:
        """Each message of the driver; ends when the driver ends the stream."""
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

    def _method(self, name: str) -> str:
        return f"/k8s.io.kubelet.pkg.apis.dra.{self.dra_service}/{name}"


def _unary(channel: grpc.aio.Channel, method: str, answer: type[Any], seconds: float) -> Callable[[Any], Any]:
    call = channel.unary_unary(
        method, request_serializer=lambda message: message.SerializeToString(), response_deserializer=answer.FromString
    )
    return lambda request: call(request, timeout=seconds)


def _claim(claim: ClaimRef) -> dra.Claim:
    return dra.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _prepared(device: dra.Device) -> PreparedDevice:
    return PreparedDevice(
        requests=tuple(device.request_names),
        pool=device.pool_name,
        device=device.device_name,
        share_id=device.share_id if device.HasField("share_id") else None,
        cdi_ids=tuple(device.cdi_device_ids),
    )


def _exactly(asked: Sequence[ClaimRef], answered: Mapping[str, object]) -> None:
    wanted = {claim.uid for claim in asked}
    if wanted != set(answered):
        raise KubeletError(f"asked for claims {sorted(wanted)}, the driver answered for {sorted(answered)}")


async def _until(condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
    # The kubelet has inotify for this; the standard library has not.
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise KubeletError(otherwise)

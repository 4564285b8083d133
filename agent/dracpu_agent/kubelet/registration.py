"""Plugin registration: the kubelet finds our socket in plugins_registry, calls GetInfo, and reports the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from dracpu_agent.kubelet.proto.kubelet_registration_pb2 import (
    InfoRequest,
    PluginInfo,
    RegistrationStatusResponse,
)
from dracpu_agent.kubelet.proto.kubelet_registration_pb2 import RegistrationStatus as RegistrationStatusMessage

PLUGIN_TYPE: Final = "DRAPlugin"
SERVICE: Final = "pluginregistration.Registration"


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    """The result of a registration. The kubelet reports it again after each of its restarts."""

    registered: bool
    error: str = ""


class Registration:
    """The Registration service of one driver."""

    def __init__(
        self,
        driver: str,
        endpoint: Path,
        versions: Sequence[str],
        on_status: Callable[[RegistrationStatus], None],
    ) -> None:
        self._info = PluginInfo(type=PLUGIN_TYPE, name=driver, endpoint=str(endpoint), supported_versions=versions)
        self._on_status = on_status
        self.status: RegistrationStatus | None = None  # None: the kubelet has not answered yet

    def services(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """The gRPC handlers for the registration socket."""
        methods = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                self._get_info, InfoRequest.FromString, PluginInfo.SerializeToString
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                self._notify, RegistrationStatusMessage.FromString, RegistrationStatusResponse.SerializeToString
            ),
        }
        return (grpc.method_handlers_generic_handler(SERVICE, methods),)

    async def _get_info(self, _request: InfoRequest, _context: object) -> PluginInfo:
        return self._info  # kubelet: GetInfo has 1 s

    async def _notify(self, request: RegistrationStatusMessage, _context: object) -> RegistrationStatusResponse:
        self.status = RegistrationStatus(request.plugin_registered, request.error)
        self._on_status(self.status)
        return RegistrationStatusResponse()

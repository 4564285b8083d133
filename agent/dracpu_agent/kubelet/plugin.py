"""A DRA driver's two sockets: the services on each, and the order in which the sockets open and close."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from dracpu_agent.kubelet.dra import VERSIONS as DRA_VERSIONS
from dracpu_agent.kubelet.dra import DraPlugin
from dracpu_agent.kubelet.health import VERSIONS as HEALTH_VERSIONS
from dracpu_agent.kubelet.health import HealthSource, HealthStreams
from dracpu_agent.kubelet.operations import ClaimOperations, ClaimService
from dracpu_agent.kubelet.registration import Registration, RegistrationStatus
from dracpu_agent.kubelet.sockets import SocketServer

# The two together stay below the 30 s that a pod has to terminate.
STOP_CALLS_SECONDS: Final = 10.0  # for calls in progress
STOP_WORK_SECONDS: Final = 10.0  # for work on claims that outlives its call


class KubeletPlugin:
    """Serves one driver to the kubelet from `start` to `stop`."""

    def __init__(
        self,
        driver: str,
        kubelet_root: Path,
        claims: ClaimService,
        health: HealthSource,
        on_registration: Callable[[RegistrationStatus], None],
    ) -> None:
        self._operations = ClaimOperations(claims)
        self._streams = HealthStreams(health)
        endpoint = kubelet_root / "plugins" / driver / "dra.sock"
        self._data = SocketServer(endpoint, DraPlugin(self._operations).services() + self._streams.services())
        self._registration = Registration(driver, endpoint, DRA_VERSIONS + HEALTH_VERSIONS, on_registration)
        self._registry = SocketServer(
            kubelet_root / "plugins_registry" / f"{driver}-reg.sock", self._registration.services()
        )

    @property
    def registration(self) -> RegistrationStatus | None:
        """The kubelet's last answer; None when it has not answered yet."""
        return self._registration.status

    async def start(self) -> None:
        """Serves both sockets, or raises SocketError and serves neither."""
        await self._data.start()  # first: the kubelet dials it as soon as the registration socket answers
        try:
            await self._registry.start()
        except BaseException:
            await self._data.stop(0)
            raise

    def health_changed(self) -> None:
        """Sends the devices' health to the kubelet at once."""
        self._streams.changed()

    async def stop(self) -> None:
        """Deregisters, then finishes the calls and the work in progress, so that no claim is left half-done."""
        await self._registry.stop(0)
        self._streams.close()
        await self._data.stop(STOP_CALLS_SECONDS)
        await self._operations.drain(STOP_WORK_SECONDS)

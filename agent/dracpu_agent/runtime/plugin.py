"""The NRI plugin: connects to the runtime, stays connected, and pushes updates.

On each connection we register, the runtime calls Configure (possibly before it answers the registration), sends all its
containers with Synchronize, and calls hooks from then on. A connection ends without a farewell, when the runtime
restarts or an answer came too late; the next connection starts with the runtime's complete list of containers again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import structlog
from google.protobuf.message import DecodeError

from dracpu_agent.placement.container import ContainerUpdate
from dracpu_agent.runtime import convert
from dracpu_agent.runtime.hooks import Hooks, RuntimeHandler
from dracpu_agent.runtime.mux import PLUGIN_CONNECTION, RUNTIME_CONNECTION, ConnectionEndedError, Mux
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_agent.runtime.ttrpc import Call, Client, Reply, Server, StatusError
from dracpu_api.errors import DriverError

SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"

CONNECT_TIMEOUT: Final = 5.0
# The runtime registers one plugin after the other, and waits for slow container stops meanwhile (containerd#14083):
# giving up early would only move us to the end of the queue (nri#292).
REGISTER_TIMEOUT: Final = 300.0
# An update waits for the hooks and the kubelet's calls before it, which take many seconds on a node that is overloaded.
# containerd aborts an update whose time is over, so that a shorter time would have it repeat the same work.
PUSH_TIMEOUT: Final = 60.0

log = structlog.get_logger("runtime")


class RuntimeUnavailableError(DriverError):
    """No runtime is connected and synchronized; the next Synchronize includes the update."""


class ListAgainError(DriverError):
    """The list of containers may lack some that started while the runtime made it: a new connection brings another."""


class UpdateFailedError(DriverError):
    """The runtime did not confirm an update: it is not known on which CPUs the container runs now."""


@dataclass(frozen=True, slots=True)
class ReconnectDelays:
    """The delays between attempts to connect, in seconds."""

    first: float = 0.2
    longest: float = 5.0
    stable: float = 30.0  # after a connection that lasted this long the delays start from the first again
    list_again: float = 10.0  # after a list of containers that may not be complete

    def after(self, failures: int) -> float:
        """The delay after this number of consecutive connections that failed or did not last."""
        return float(min(self.longest, self.first * 2 ** min(failures - 1, 30)))


@dataclass(frozen=True, slots=True)
class _Link:
    """A connection on which updates can be pushed."""

    client: Client
    server: Server
    since: float


class NriPlugin:
    """The agent's end of NRI."""

    def __init__(
        self,
        socket: Path,
        handler: RuntimeHandler,
        *,
        name: str = "dra-cpu",
        index: str = "45",  # the runtime calls plugins in the order of their indices
        delays: ReconnectDelays | None = None,
        answered: Callable[[str, float], None] | None = None,  # hook and seconds, for metrics
        serves_memory: bool = False,  # then the runtime asks before it changes the resources of a pod
    ) -> None:
        self._socket = socket
        self._handler = handler
        self._registration = nri.RegisterPluginRequest(plugin_name=name, plugin_idx=index)
        self._delays = delays or ReconnectDelays()
        self._answered = answered
        self._serves_memory = serves_memory
        self._link: _Link | None = None
        self._reconnect_at_once = False
        self._lists_due = 0  # lists of containers that are still needed to have seen every container

    async def run(self) -> NoReturn:
        """Keeps the plugin connected until it is cancelled."""
        failures = 0
        last_reason = ""
        while True:
            reason, served = await self._serve_connection()
            self._handler.disconnected(reason)
            if self._reconnect_at_once:  # containers that are created without the plugin get no CPUs
                self._reconnect_at_once = False
                continue
            self._lists_due = 0  # containers may have started unseen since, so that another list is needed
            if served > 0 or reason != last_reason:
                log.warning("container runtime not connected", socket=str(self._socket), reason=reason)
            last_reason = reason
            failures = 1 if served >= self._delays.stable else failures + 1
            await asyncio.sleep(self._delays.after(failures))

    async def push(self, update: ContainerUpdate) -> None:
        """Moves one container now. For runtimes with `RuntimeInfo.unsolicited_updates` only: others can deadlock.

        Raises UpdateFailedError or RuntimeUnavailableError. Cancelling does not revoke an update that has been sent.
        The runtime answers no update while it waits for a hook, so a hook must not wait for this, directly or not.
        """
        link = self._link
        if link is None:
            raise RuntimeUnavailableError("the container runtime is not connected")
        if link.server.is_answering_in(asyncio.current_task()):
            raise RuntimeError("push inside a hook: the runtime would wait for the hook, and the hook for the runtime")
        request = nri.UpdateContainersRequest(update=[convert.update(update)])
        try:
            payload = await link.client.call(SERVICE, "UpdateContainers", request.SerializeToString(), PUSH_TIMEOUT)
        except ConnectionEndedError as error:
            raise RuntimeUnavailableError(str(error)) from error
        except TimeoutError as error:
            raise UpdateFailedError(
                f"the runtime did not answer the update of container {update.container_id} in {PUSH_TIMEOUT:g} s"
            ) from error
        except StatusError as error:
            raise UpdateFailedError(f"the runtime did not update container {update.container_id}: {error}") from error
        # One container per call: containerd does not say which update failed, other runtimes list them.
        try:
            failed = nri.UpdateContainersResponse.FromString(payload).failed
        except DecodeError as error:
            raise UpdateFailedError(f"the runtime's answer to an update cannot be decoded: {error}") from error
        if failed:
            raise UpdateFailedError(f"the runtime did not update container {update.container_id}")

    async def _serve_connection(self) -> tuple[str, float]:
        """Connects and serves until the connection ends. Returns why it ended, and for how many seconds it served."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError as error:  # includes TimeoutError
            reason = error.strerror or str(error) or "no answer"
            return f"cannot connect to {self._socket}: {reason}; is NRI enabled in the container runtime?", 0.0
        mux = Mux(reader, writer)
        try:
            return await self._serve(mux)
        finally:
            mux.close()

    async def _serve(self, mux: Mux) -> tuple[str, float]:
        client = Client(partial(mux.send, RUNTIME_CONNECTION))
        reason = "the agent is stopping"
        served = 0.0
        try:
            async with asyncio.TaskGroup() as group:
                server = self._server(client, mux, group)
                # The runtime may call us before it answers the registration.
                group.create_task(self._register(client), name="nri registration")
                await mux.run({PLUGIN_CONNECTION: server.receive, RUNTIME_CONNECTION: client.receive})
        except* DriverError as ended:
            reason = "; ".join(dict.fromkeys(map(str, ended.exceptions)))
        except* Exception:
            log.exception("the connection to the runtime failed")
            reason = "internal error, see the agent's log"
        finally:
            if self._link is not None:
                served = asyncio.get_running_loop().time() - self._link.since
                self._link = None
            client.end(reason)
        return reason, served

    def _server(self, client: Client, mux: Mux, group: asyncio.TaskGroup) -> Server:
        loop = asyncio.get_running_loop()

        def on_synchronized() -> None:
            self._link = _Link(client, server, loop.time())
            self._handler.synchronized()
            if hooks.runtime.lists_completely:
                return
            self._lists_due = (self._lists_due or 2) - 1
            if self._lists_due:
                group.create_task(self._list_again(), name="nri second list")

        async def answer(call: Call) -> Reply:
            try:
                return await hooks.answer(call)
            finally:
                if self._answered is not None:
                    self._answered(call.method, loop.time() - call.received)

        hooks = Hooks(self._handler, on_synchronized, serves_memory=self._serves_memory)
        server = Server(answer, partial(mux.send, PLUGIN_CONNECTION), group)
        return server

    async def _list_again(self) -> NoReturn:
        await asyncio.sleep(self._delays.list_again)
        log.info("the runtime may have started containers while it listed them: it is asked for the list again")
        self._reconnect_at_once = True
        raise ListAgainError("containers may have started unseen while the runtime listed them")

    async def _register(self, client: Client) -> None:
        try:
            async with asyncio.timeout(REGISTER_TIMEOUT):
                await client.call(SERVICE, "RegisterPlugin", self._registration.SerializeToString())
        except TimeoutError as error:
            raise RuntimeUnavailableError(
                f"the container runtime did not answer the registration in {REGISTER_TIMEOUT:g} s"
            ) from error
        except StatusError as error:  # the runtime leaves the connection open, but will not use it
            raise RuntimeUnavailableError(f"the container runtime refused the registration: {error}") from error

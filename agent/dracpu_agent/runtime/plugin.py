"""The NRI plugin: connects to the runtime, stays connected, and pushes updates.

A connection goes like this: we register, the runtime asks how to be configured (possibly before it answers the
registration), sends all its containers, and calls hooks from then on. It never says goodbye: the stream just ends,
because it restarts, or because an answer came too late. Then everything begins anew, from the runtime's own list.
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
# The runtime takes in one plugin after the other, and waits for slow container stops meanwhile (containerd#14083):
# giving up early would only send us to the end of the queue (nri#292).
REGISTER_TIMEOUT: Final = 300.0
# An update waits for the hook at hand, of all plugins, and for the update of the cgroup.
PUSH_TIMEOUT: Final = 10.0

log = structlog.get_logger("runtime")


class RuntimeUnavailableError(DriverError):
    """No runtime is connected and synchronized; after the next Synchronize nothing is left to push."""


class UpdateFailedError(DriverError):
    """The runtime did not confirm an update: on which CPUs the container runs now is not known."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt, in seconds."""

    first: float = 0.2
    longest: float = 5.0
    stable: float = 30.0  # a connection that served this long proves that attempts are worth it again

    def delay(self, failures: int) -> float:
        """The wait after so many connections in a row that failed or did not last."""
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
        index: str = "45",  # plugins are called in this order
        backoff: Backoff | None = None,
        answered: Callable[[str, float], None] | None = None,  # hook and seconds, for metrics
    ) -> None:
        self._socket = socket
        self._handler = handler
        self._registration = nri.RegisterPluginRequest(plugin_name=name, plugin_idx=index)
        self._backoff = backoff or Backoff()
        self._answered = answered
        self._link: _Link | None = None

    async def run(self) -> NoReturn:
        """Keeps the plugin connected until it is cancelled."""
        failures = 0
        last_reason = ""
        while True:
            reason, served = await self._connection()
            self._handler.disconnected(reason)
            if served > 0 or reason != last_reason:
                log.warning("no runtime", socket=str(self._socket), reason=reason)
            last_reason = reason
            failures = 1 if served >= self._backoff.stable else failures + 1
            await asyncio.sleep(self._backoff.delay(failures))

    async def push(self, update: ContainerUpdate) -> None:
        """Moves one container now. For runtimes with `RuntimeInfo.unsolicited_updates` only: others can deadlock.

        Raises UpdateFailedError or RuntimeUnavailableError. Cancelling does not take back what is sent. The runtime
        answers no update while it waits for a hook, so a hook must neither await this nor a task that does.
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
        # One container a call: containerd reports failures without saying whose, others list them.
        try:
            failed = nri.UpdateContainersResponse.FromString(payload).failed
        except DecodeError as error:
            raise UpdateFailedError(f"the runtime's answer to an update cannot be read: {error}") from error
        if failed:
            raise UpdateFailedError(f"the runtime did not update container {update.container_id}")

    async def _connection(self) -> tuple[str, float]:
        """One connection from beginning to end -> why it ended, and how many seconds it was of use."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError as error:  # a TimeoutError is one as well
            reason = error.strerror or str(error) or "no answer"
            return f"cannot connect to {self._socket}: {reason}; is NRI enabled in the container runtime?", 0.0
        mux = Mux(reader, writer)
        try:
            return await self._converse(mux)
        finally:
            mux.close()

    async def _converse(self, mux: Mux) -> tuple[str, float]:
        client = Client(partial(mux.send, RUNTIME_CONNECTION))
        reason = "the agent ends"
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

        async def answer(call: Call) -> Reply:
            try:
                return await hooks.answer(call)
            finally:
                if self._answered is not None:
                    self._answered(call.method, loop.time() - call.received)

        hooks = Hooks(self._handler, on_synchronized)
        server = Server(answer, partial(mux.send, PLUGIN_CONNECTION), group)
        return server

    async def _register(self, client: Client) -> None:
        try:
            async with asyncio.timeout(REGISTER_TIMEOUT):
                await client.call(SERVICE, "RegisterPlugin", self._registration.SerializeToString())
        except TimeoutError as error:
            raise RuntimeUnavailableError(
                f"the container runtime did not answer the registration in {REGISTER_TIMEOUT:g} s"
            ) from error
        except StatusError as error:  # the runtime leaves the connection open, for nothing
            raise RuntimeUnavailableError(f"the container runtime refused the registration: {error}") from error

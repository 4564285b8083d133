"""A container runtime with NRI but without containers; plugins connect to a real unix socket and real messages.

    async with NriRuntime(tmp_path / "nri.sock") as runtime:
        await runtime.synchronized()                         # the plugin under test has connected
        web = await runtime.create_container(PodSandbox("web"), "app")
        assert runtime.cpuset_of(web) == "2-7"

It carries out the procedures of `Containerd`, step by step. One lock covers each hook with the updates in its reply,
and each unsolicited update; `at_moment` is awaited wherever containerd holds no lock. Updates of unknown containers
succeed without an effect; an empty cpuset changes nothing; a plugin that answers too late is disconnected, and the
container is created without it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from google.protobuf.message import Message

from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_sandbox.node.containerd import Cgroups, Containerd, Hook, HookError, Moment, Report, Steps
from dracpu_sandbox.node.containers import Container, Given, PodSandbox, next_container_id
from dracpu_sandbox.node.nri_wire import CallError, ConnectionLost, PluginConnection

_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
_OWN_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
_PATIENCE = 30.0  # seconds; long enough for slow machines


_METHODS: Final[dict["nri.Event.ValueType", tuple[str, type[Message]]]] = {
    nri.CREATE_CONTAINER: ("CreateContainer", nri.CreateContainerRequest),
    nri.POST_CREATE_CONTAINER: ("PostCreateContainer", nri.PostCreateContainerRequest),
    nri.START_CONTAINER: ("StartContainer", nri.StartContainerRequest),
    nri.POST_START_CONTAINER: ("PostStartContainer", nri.PostStartContainerRequest),
    nri.UPDATE_CONTAINER: ("UpdateContainer", nri.UpdateContainerRequest),
    nri.POST_UPDATE_CONTAINER: ("PostUpdateContainer", nri.PostUpdateContainerRequest),
    nri.STOP_CONTAINER: ("StopContainer", nri.StopContainerRequest),
    nri.REMOVE_CONTAINER: ("RemoveContainer", nri.RemoveContainerRequest),
}
# the hooks that had methods of their own before NRI 0.12, as their replies are not empty
_ALWAYS_METHODS: Final = (nri.CREATE_CONTAINER, nri.UPDATE_CONTAINER, nri.STOP_CONTAINER)


class NriRuntime:
    """The runtime. Tests may change its attributes at any time."""

    def __init__(
        self,
        socket: Path,
        *,
        name: str = "containerd",
        version: str = "v2.4.0",
        nri_version: str = "v0.12.2",
        cgroups: Cgroups | None = None,
    ):
        self.socket = socket
        self.name = name
        self.version = version
        self.nri_version = nri_version
        self.registration_timeout = 5.0  # seconds, as is request_timeout
        self.request_timeout = 2.0
        self.own_methods = True  # False: NRI before 0.12 sends most hooks as StateChange
        self.passes_cdi_devices = True  # False: containerd before 2.3
        self.has_memory_policies = True  # likewise
        self.known_events = 0x3FFF  # before NRI 0.10: 0x7FF
        self.skip_ids = False
        self.containers_per_chunk: int | None = None  # Synchronize in several requests
        self.before_chunk: Callable[[int], None] | None = None  # called with the number of each chunk
        self.refuse_registration = ""
        self.containerd = Containerd(cgroups)
        self.containers = self.containerd.containers
        self.at_moment: Callable[[Moment, Container], Awaitable[None]] = _go_on
        self.connections = 0  # number of registrations so far
        self.subscribed = 0  # the events in the plugin's answer to Configure
        self.registration = nri.RegisterPluginRequest()
        self.lost: list[str] = []  # why plugins were disconnected
        self.on_change: Callable[[], None] = lambda: None  # a container's cpuset may have changed
        self._plugin: PluginConnection | None = None
        self._open: set[PluginConnection] = set()
        self._nri_lock = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # ---- the process

    async def start(self) -> None:
        """Starts to listen on a new socket."""
        self.socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, self.socket)

    async def stop(self) -> None:
        """Stops the runtime; its containers continue."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self.socket.unlink(missing_ok=True)
        self.drop()
        await self.until(lambda: not self._open)

    async def restart(self) -> None:
        """Replaces the process; the containers remain."""
        await self.stop()
        await self.start()

    def drop(self) -> None:
        """Closes the plugin's connection, as the runtime does after a late answer."""
        self._plugin = None
        for connection in self._open:
            connection.close()

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Holds the lock, as the hook of another plugin does: updates that plugins request must wait."""
        async with self._nri_lock:
            yield

    async def synchronized(self) -> None:
        """Waits until a plugin is connected and has answered Synchronize."""
        await self.until(lambda: self._plugin is not None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for an effect of the plugin, such as a cpuset; raises TimeoutError if it does not occur."""
        async with asyncio.timeout(_PATIENCE), self._changed:
            await self._changed.wait_for(condition)

    # ---- requests of the kubelet

    async def create_container(
        self,
        pod: PodSandbox,
        name: str,
        *,
        env: Sequence[str] = (),
        cdi_devices: Sequence[str] = (),
        cpus: str = "",
        asked: Given | None = None,
        volumes: Sequence[str] = (),
        start: bool = True,
    ) -> str:
        """Creates and starts a container; returns its id. Raises HookError where the kubelet would get an error."""
        made = Container(next_container_id(), pod, name, tuple(env), tuple(cdi_devices), spec_cpus=cpus)
        made.volumes = tuple(volumes)
        if asked is not None:
            made.spec_memory, made.spec_limits, made.score = asked.memory, dict(asked.limits), asked.score or 0
        await self._carry_out(self.containerd.create(made), made)
        if start:
            await self.start_container(made.id)
        return made.id

    async def start_container(self, container_id: str) -> None:
        """Starts a created container. Raises HookError."""
        container = self.containers[container_id]
        await self._carry_out(self.containerd.start(container), container)

    async def stop_container(self, container_id: str) -> None:
        """Marks the container as ended, and calls the plugin's hook."""
        container = self.containers[container_id]
        await self._carry_out(self.containerd.stop(container), container)

    async def remove_container(self, container_id: str) -> None:
        """Removes the container from the runtime."""
        container = self.containers[container_id]
        await self._carry_out(self.containerd.remove(container), container)

    async def update_container(self, container_id: str, *, cpus: str = "", asked: Given | None = None) -> None:
        """Changes the container's resources, as the kubelet does; its CPU manager may set cpus. Raises HookError."""
        container = self.containers[container_id]
        await self._carry_out(self.containerd.update(container, asked or Given(cpus)), container)

    async def update_pod(self, pod: PodSandbox, asked: Given) -> None:
        """Announces new resources of a pod, as the kubelet does before it changes them. Raises HookError."""
        if self.subscribed and not self.subscribed & 1 << (nri.UPDATE_POD_SANDBOX - 1):
            return
        request = nri.UpdatePodSandboxRequest(pod=pod.message(), linux_resources=asked.message())
        async with self._nri_lock:
            try:
                await self._call("UpdatePodSandbox", request)
            except CallError as error:
                raise HookError(str(error)) from error

    def cpuset_of(self, container_id: str) -> str:
        """Returns the cpuset of a container's cgroup; "" allows all CPUs."""
        return self.containers[container_id].cpus

    def limits_of(self, container_id: str) -> Mapping[str, str]:
        """Returns other files of a container's cgroup than its cpuset, as far as the plugin has set them."""
        return self.containers[container_id].cgroup_limits

    # ---- hooks

    async def _carry_out(self, steps: Steps, container: Container) -> None:
        given: Given | None = None
        refusal: HookError | None = None
        try:
            while True:
                step = steps.send(given) if refusal is None else steps.throw(refusal)
                given = refusal = None
                if isinstance(step, Moment):
                    await self._notify()
                    await self.at_moment(step, container)
                    continue
                try:
                    given = await self._hook(step)
                except HookError as error:
                    refusal = error
        except StopIteration:
            return
        finally:
            await self._notify()

    async def _hook(self, step: Hook | Report) -> Given:
        """Calls the plugin and applies the updates in its reply; returns what it gives the container."""
        method, kind = _METHODS[step.event]
        pod, container = step.container.pod.message(), self._message(step.container)
        request = kind(pod=pod, container=container)
        if step.event == nri.CREATE_CONTAINER:
            request.MergeFromString(step.container.details().SerializeToString())
        if isinstance(request, nri.UpdateContainerRequest) and isinstance(step, Hook):
            request.linux_resources.CopyFrom(step.asked.message())
        async with self._nri_lock:
            try:
                if self.own_methods or step.event in _ALWAYS_METHODS:
                    answer = await self._call(method, request)
                else:
                    change = nri.StateChangeEvent(event=step.event, pod=pod, container=container)
                    answer = await self._call("StateChange", change)
            except CallError as error:
                if isinstance(step, Hook):
                    raise HookError(str(error)) from error
                self.lost.append(f"{method}: {error}")  # the runtime only logs it
                return Given()
            return self._take_reply(step, answer or b"")

    def _take_reply(self, step: Hook | Report, answer: bytes) -> Given:
        made = step.container
        if step.event == nri.CREATE_CONTAINER:
            response = nri.CreateContainerResponse.FromString(answer)
            updated = [update.container_id for update in response.update]
            if made.id in updated or len(set(updated)) < len(updated):
                raise HookError("conflicting updates in one answer")
            self.containerd.apply(response.update)
            return Given.at_creation(response.adjust, policies=self.has_memory_policies)
        if step.event == nri.STOP_CONTAINER:
            self.containerd.apply(nri.StopContainerResponse.FromString(answer).update)
        if step.event == nri.UPDATE_CONTAINER:
            updates = nri.UpdateContainerResponse.FromString(answer).update
            self.containerd.apply(update for update in updates if update.container_id != made.id)
            own = [update for update in updates if update.container_id == made.id]
            return Given.of(own[-1].linux.resources) if own else Given()
        return Given()

    async def _call(self, method: str, request: Message) -> bytes | None:
        """Calls the plugin; returns None without a plugin, or if the plugin is lost during the call."""
        if self._plugin is None:
            return None
        plugin = self._plugin
        try:
            return await plugin.call(_SERVICE, method, request.SerializeToString(), self.request_timeout)
        except ConnectionLost as lost:
            self.lost.append(str(lost))
            self.drop()
            return None

    def _message(self, container: Container) -> nri.Container:
        return container.message(with_cdi=self.passes_cdi_devices)

    async def _notify(self) -> None:
        self.on_change()
        async with self._changed:
            self._changed.notify_all()

    # ---- the connection

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        registered = asyncio.Event()
        configured = asyncio.Event()

        async def serve(method: str, payload: bytes) -> bytes:
            if method == f"{_OWN_SERVICE}/UpdateContainers":
                return await self._update_containers(nri.UpdateContainersRequest.FromString(payload))
            if method != f"{_OWN_SERVICE}/RegisterPlugin":
                raise CallError(12, f"method {method}")
            if self.refuse_registration:
                raise CallError(2, self.refuse_registration)
            self.registration = nri.RegisterPluginRequest.FromString(payload)
            self.connections += 1
            registered.set()
            await configured.wait()  # so that Configure comes before the answer to the registration
            return nri.Empty().SerializeToString()

        connection = PluginConnection(reader, writer, serve, skip_ids=self.skip_ids)
        self._open.add(connection)
        handshake = asyncio.create_task(self._handshake(connection, registered, configured), name="nri handshake")
        try:
            await connection.run()
        finally:
            handshake.cancel()
            await asyncio.wait((handshake,))
            if connection.reason:
                self.lost.append(connection.reason)
            if self._plugin is connection:
                self._plugin = None
            self._open.discard(connection)
            await self._notify()

    async def _handshake(
        self, connection: PluginConnection, registered: asyncio.Event, configured: asyncio.Event
    ) -> None:
        try:
            async with asyncio.timeout(self.registration_timeout):
                await registered.wait()
        except TimeoutError:
            self.lost.append("a plugin did not register in time")
            connection.close()
            return
        request = nri.ConfigureRequest(
            runtime_name=self.name,
            runtime_version=self.version,
            NRI_version=self.nri_version,
            registration_timeout=int(self.registration_timeout * 1000),
            request_timeout=int(self.request_timeout * 1000),
        )
        try:
            answer = await connection.call(_SERVICE, "Configure", request.SerializeToString(), self.request_timeout)
            self.subscribed = nri.ConfigureResponse.FromString(answer).events
            configured.set()
            if self.subscribed & ~self.known_events:
                self.lost.append(f"invalid plugin events: {self.subscribed:#x}")
                connection.close()
                return
            async with self._nri_lock:
                updates = await self._synchronize(connection)
                self._plugin = connection
                self.containerd.apply(updates)
            await self._notify()
        except (CallError, ConnectionLost) as error:
            self.lost.append(f"handshake: {error}")
            connection.close()

    async def _synchronize(self, connection: PluginConnection) -> Sequence[nri.ContainerUpdate]:
        alive = self.containerd.listed()
        size = self.containers_per_chunk or max(len(alive), 1)
        chunks = [alive[start : start + size] for start in range(0, len(alive), size)] or [[]]
        pods = list({known.pod.id: known.pod.message() for known in alive}.values())
        deadline = asyncio.get_running_loop().time() + self.request_timeout  # one deadline for all chunks
        for number, chunk in enumerate(chunks):
            if self.before_chunk is not None:
                self.before_chunk(number)
            more = number + 1 < len(chunks)
            request = nri.SynchronizeRequest(pods=[] if more else pods, containers=map(self._message, chunk), more=more)
            answer = await connection.call(
                _SERVICE,
                "Synchronize",
                request.SerializeToString(),
                deadline - asyncio.get_running_loop().time(),
            )
            response = nri.SynchronizeResponse.FromString(answer)
            if response.more != more or (more and response.update):
                raise ConnectionLost("the answer to a chunk does not match the chunk")
        return response.update

    async def _update_containers(self, request: nri.UpdateContainersRequest) -> bytes:
        async with self._nri_lock:  # waits for a running hook
            failed = self.containerd.apply(request.update)
        await self._notify()
        if failed:
            raise CallError(2, "NRI update of some containers failed")
        return nri.UpdateContainersResponse().SerializeToString()


async def _go_on(moment: Moment, container: Container) -> None:
    """Lets nothing happen between two steps."""

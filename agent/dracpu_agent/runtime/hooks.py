"""The methods that the runtime calls: the handshake, and the hooks in a container's life.

Every hook decodes its request, calls the handler, and encodes the answer. Hooks that decide (create, start, update)
answer in time, with an error if need be: a runtime that gets no answer drops the plugin and runs the container on any
CPU. Hooks that only report an event (the end of a creation, start or update, stop, remove) never fail: the runtime
would not call other plugins after an error.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container, ContainerUpdate, Placement, RuntimeInfo
from dracpu_agent.runtime import convert
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_agent.runtime.ttrpc import Call, Code, Reply, StatusError
from dracpu_agent.runtime.versions import runtime_info

SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"
ANSWER_WITHIN: Final = 0.75  # of the runtime's timeout; the rest is for sending the answer
DEFAULT_REQUEST_TIMEOUT: Final = 2.0  # seconds; runtimes before NRI 0.7 do not send their timeout

# Every NRI version knows these events: an unknown one would end the connection.
SUBSCRIBED: Final = (
    nri.CREATE_CONTAINER,
    nri.POST_CREATE_CONTAINER,
    nri.START_CONTAINER,
    nri.POST_START_CONTAINER,
    nri.UPDATE_CONTAINER,
    nri.POST_UPDATE_CONTAINER,
    nri.STOP_CONTAINER,
    nri.REMOVE_CONTAINER,
)

log = structlog.get_logger("runtime")

_M = TypeVar("_M", bound=Message)
_T = TypeVar("_T")
_Hook = Callable[[Call], Awaitable[Reply]]


class RuntimeHandler(Protocol):
    """Decides what the hooks answer."""

    def connected(self, runtime: RuntimeInfo) -> None:
        """The runtime has sent its name and version; its containers follow."""

    def synchronize(self, containers: Sequence[Container]) -> Sequence[ContainerUpdate]:
        """Receives all containers, returns the updates of those that have to move."""

    def synchronized(self) -> None:
        """The answer to `synchronize` has been sent: from now on updates may be pushed."""

    async def create(self, container: Container) -> Placement:
        """Returns where a new container runs and which others move for it; PlacementError fails its creation.

        Cancelled when the runtime's timeout is about to expire; the creation has failed then.
        """

    def created(self, container_id: str) -> None:
        """The runtime has stored the container: before that, updates of it are lost without an error.

        Called after the creation and again before the start, as not every runtime reports both.
        """

    async def start(self, container: Container) -> None:
        """Allows the container to start; PlacementError prevents it. Cancelled as `create` is."""

    def started(self, container: Container) -> None:
        """The container runs: before that, updates change only the runtime's record of it."""

    def update(self, container: Container) -> ContainerUpdate | None:
        """The kubelet changes the container's resources: returns its CPUs again; PlacementError fails the change."""

    def updated(self, container: Container) -> None:
        """The runtime has carried out the kubelet's change, with the CPUs that `update` returned."""

    async def resize_pod(self, pod_uid: str) -> None:
        """The kubelet is about to change the resources of a pod; PlacementError prevents it. Cancelled as `create` is.

        Called only if the plugin serves memory, and the runtime is new enough.
        """

    def stopped(self, container_id: str) -> Sequence[ContainerUpdate]:
        """The container has ended, or its creation failed: returns updates of others. May be called repeatedly."""

    def removed(self, container_id: str) -> None:
        """The runtime has removed the container; sometimes the only notice of its end."""

    def disconnected(self, reason: str) -> None:
        """The connection has ended, or an attempt to connect failed."""


class Hooks:
    """The plugin's side of one connection."""

    def __init__(
        self, handler: RuntimeHandler, on_synchronized: Callable[[], None], *, serves_memory: bool = False
    ) -> None:
        self._handler = handler
        self._on_synchronized = on_synchronized
        self._serves_memory = serves_memory
        self._kept_from_resize: set[str] = set()  # pods whose resize was refused: the kubelet asks again every second
        self.runtime = RuntimeInfo()
        self._request_timeout = DEFAULT_REQUEST_TIMEOUT
        self._inventory = convert.Inventory()
        self._methods: dict[str, _Hook] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "Shutdown": self._ignore,
            "CreateContainer": self._create,
            "PostCreateContainer": self._post_create,
            "StartContainer": self._start,
            "PostStartContainer": self._post_start,
            "UpdateContainer": self._update,
            "PostUpdateContainer": self._post_update,
            "UpdatePodSandbox": self._update_pod,
            "StopContainer": self._stop,
            "RemoveContainer": self._remove,
            "StateChange": self._state_change,
        }

    async def answer(self, call: Call) -> Reply:
        """Answers a call of the runtime; raises StatusError."""
        hook = self._methods.get(call.method) if call.service == SERVICE else None
        if hook is None:
            raise StatusError(Code.UNIMPLEMENTED, f"the plugin does not implement {call.service}/{call.method}")
        return await hook(call)

    # ---- the handshake

    async def _configure(self, call: Call) -> Reply:
        request = _read(nri.ConfigureRequest, call)
        self._request_timeout = request.request_timeout / 1000 or DEFAULT_REQUEST_TIMEOUT
        self.runtime = runtime = runtime_info(request.runtime_name, request.runtime_version, request.NRI_version)
        log.info("runtime connected", runtime=runtime.name, version=runtime.version, nri=runtime.nri)
        self._handler.connected(runtime)
        resizes = [nri.UPDATE_POD_SANDBOX] if self._serves_memory and runtime.reports_resizes else []
        return _reply(nri.ConfigureResponse(events=sum(1 << (event - 1) for event in (*SUBSCRIBED, *resizes))))

    async def _synchronize(self, call: Call) -> Reply:
        request = _read(nri.SynchronizeRequest, call)
        self._inventory.add(request.pods, request.containers)
        if request.more:  # any other field in this answer would end the connection
            return _reply(nri.SynchronizeResponse(more=True))
        containers, self._inventory = self._inventory.containers(), convert.Inventory()
        updates = self._handler.synchronize(containers)
        log.info("runtime synchronized", containers=len(containers), updates=len(updates))
        return _reply(nri.SynchronizeResponse(update=_messages(updates)), sent=self._on_synchronized)

    async def _ignore(self, _: Call) -> Reply:
        return Reply(b"")

    # ---- hooks that decide

    async def _create(self, call: Call) -> Reply:
        request = _read(nri.CreateContainerRequest, call)
        container = convert.container(request.container, request.pod)
        if self._serves_memory:
            container = convert.with_details(container, _read(nri.CreationDetails, call))

        async def decide() -> Reply:
            placement = await self._handler.create(container)
            nodes = placement.at_creation.preferred_nodes
            if nodes and not self.runtime.memory_policies:
                log.warning(
                    "the container prefers no NUMA node: that needs NRI 0.12", container=str(container), nodes=nodes
                )
            return _reply(convert.create_response(container, placement))

        return await self._decide(call, container, decide())

    async def _start(self, call: Call) -> Reply:
        request = _read(nri.StartContainerRequest, call)
        await self._decide_start(call, convert.container(request.container, request.pod))
        return _reply(nri.StartContainerResponse())

    async def _decide_start(self, call: Call, container: Container) -> None:
        self._report_created(container.id)  # for runtimes that send no PostCreateContainer
        await self._decide(call, container, self._handler.start(container))

    async def _update(self, call: Call) -> Reply:
        request = _read(nri.UpdateContainerRequest, call)
        known = convert.container(request.container, request.pod)
        container = convert.with_changes(known, request.linux_resources)

        async def decide() -> Reply:
            update = self._handler.update(container)
            return _reply(nri.UpdateContainerResponse(update=[convert.update(update)] if update else []))

        return await self._decide(call, container, decide())

    async def _update_pod(self, call: Call) -> Reply:
        pod = _read(nri.UpdatePodSandboxRequest, call).pod
        limit = self._time_limit(call)
        try:
            async with limit:
                await self._handler.resize_pod(pod.uid)
        except PlacementError as error:
            if pod.uid not in self._kept_from_resize:
                self._kept_from_resize.add(pod.uid)
                log.warning("resize of a pod refused", pod=f"{pod.namespace}/{pod.name}", error=str(error))
            raise StatusError(Code.UNKNOWN, str(error)) from error
        except TimeoutError:
            log.warning("decision took too long", hook=call.method, pod=f"{pod.namespace}/{pod.name}")
            raise StatusError(
                Code.DEADLINE_EXCEEDED,
                f"the resize of pod {pod.name} could not be checked in time: the kubelet retries",
            ) from None
        self._kept_from_resize.discard(pod.uid)
        return _reply(nri.UpdatePodSandboxResponse())

    def _time_limit(self, call: Call) -> asyncio.Timeout:
        timeout = self._request_timeout if call.timeout is None else call.timeout
        return asyncio.timeout_at(call.received + ANSWER_WITHIN * timeout)

    async def _decide(self, call: Call, container: Container, decision: Awaitable[_T]) -> _T:
        limit = self._time_limit(call)
        try:
            async with limit:
                return await decision
        except PlacementError as error:
            log.warning("container refused", hook=call.method, container=str(container), error=str(error))
            raise StatusError(Code.UNKNOWN, str(error)) from error
        except Exception as error:
            if limit.expired():
                log.warning("decision took too long", hook=call.method, container=str(container))
                raise StatusError(
                    Code.DEADLINE_EXCEEDED,
                    f"the CPUs of container {container.name} could not be decided in time: see the log of dracpu-agent",
                ) from None
            error.add_note(f"in {call.method} of container {container} ({container.id})")
            raise

    # ---- hooks that only report

    async def _post_create(self, call: Call) -> Reply:
        self._report_created(_read(nri.PostCreateContainerRequest, call).container.id)
        return _reply(nri.PostCreateContainerResponse())

    async def _post_start(self, call: Call) -> Reply:
        request = _read(nri.PostStartContainerRequest, call)
        self._report_started(convert.container(request.container, request.pod))
        return _reply(nri.PostStartContainerResponse())

    async def _post_update(self, call: Call) -> Reply:
        request = _read(nri.PostUpdateContainerRequest, call)
        self._report_updated(convert.container(request.container, request.pod))
        return _reply(nri.PostUpdateContainerResponse())

    async def _stop(self, call: Call) -> Reply:
        container_id = _read(nri.StopContainerRequest, call).container.id
        updates: Sequence[ContainerUpdate] = ()
        with _logged("end", container_id):
            updates = self._handler.stopped(container_id)
        return _reply(nri.StopContainerResponse(update=_messages(updates)))

    async def _remove(self, call: Call) -> Reply:
        self._report_removed(_read(nri.RemoveContainerRequest, call).container.id)
        return _reply(nri.RemoveContainerResponse())

    async def _state_change(self, call: Call) -> Reply:
        """Before NRI 0.12 these hooks have no methods of their own."""
        event = _read(nri.StateChangeEvent, call)
        match event.event:
            case nri.POST_CREATE_CONTAINER:
                self._report_created(event.container.id)
            case nri.START_CONTAINER:
                await self._decide_start(call, convert.container(event.container, event.pod))
            case nri.POST_START_CONTAINER:
                self._report_started(convert.container(event.container, event.pod))
            case nri.POST_UPDATE_CONTAINER:
                self._report_updated(convert.container(event.container, event.pod))
            case nri.REMOVE_CONTAINER:
                self._report_removed(event.container.id)
        return _reply(nri.Empty())

    def _report_created(self, container_id: str) -> None:
        with _logged("creation", container_id):
            self._handler.created(container_id)

    def _report_started(self, container: Container) -> None:
        with _logged("start", container.id):
            self._handler.started(container)

    def _report_updated(self, container: Container) -> None:
        with _logged("change", container.id):
            self._handler.updated(container)

    def _report_removed(self, container_id: str) -> None:
        with _logged("removal", container_id):
            self._handler.removed(container_id)


@contextlib.contextmanager
def _logged(event: str, container_id: str) -> Iterator[None]:
    """Logs an error in processing an event: an error in the answer would keep the event from other plugins."""
    try:
        yield
    except Exception:
        log.exception(f"cannot process the {event} of a container", container_id=container_id)


def _read(kind: type[_M], call: Call) -> _M:
    try:
        return kind.FromString(call.payload)
    except DecodeError as error:
        raise StatusError(Code.INTERNAL, f"the request of {call.method} cannot be decoded: {error}") from error


def _reply(message: Message, sent: Callable[[], None] | None = None) -> Reply:
    return Reply(message.SerializeToString(), sent)


def _messages(updates: Iterable[ContainerUpdate]) -> list[nri.ContainerUpdate]:
    """Encodes the updates, without those that cannot be sent."""
    messages: list[nri.ContainerUpdate] = []
    for update in updates:
        try:
            messages.append(convert.update(update))
        except PlacementError as error:
            log.warning("container not updated", container_id=update.container_id, error=str(error))
    return messages

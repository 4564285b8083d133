"""A small NRI plugin for tests of the simulated runtime: it records its calls, and answers as a test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import Message

from dracpu_agent.runtime.mux import PLUGIN_CONNECTION, RUNTIME_CONNECTION, ConnectionEndedError, Mux
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_agent.runtime.ttrpc import Call, Client, Code, Reply, Server, StatusError

_RUNTIME: Final = "nri.pkg.api.v1alpha1.Runtime"
_REQUESTS: Final[dict[str, type[Message]]] = {
    "CreateContainer": nri.CreateContainerRequest,
    "UpdateContainer": nri.UpdateContainerRequest,
    "UpdatePodSandbox": nri.UpdatePodSandboxRequest,
}


class SmallPlugin:
    """The plugin. A method without an answer succeeds and changes nothing."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []  # method and request, of the methods in _REQUESTS
        self.answers: dict[str, Callable[[Any], Message]] = {}  # may raise `refusal`
        self.containers: dict[str, nri.Container] = {}  # as the runtime has listed them
        self.synchronized = asyncio.Event()
        self._client: Client | None = None

    def requests(self, method: str) -> list[Any]:
        """Returns the requests of a method, in order."""
        return [request for called, request in self.calls if called == method]

    async def update(self, container_id: str, resources: nri.LinuxResources) -> None:
        """Changes a container without being called; raises StatusError."""
        assert self._client is not None
        change = nri.ContainerUpdate(container_id=container_id)
        change.linux.resources.CopyFrom(resources)
        request = nri.UpdateContainersRequest(update=[change])
        await self._client.call(_RUNTIME, "UpdateContainers", request.SerializeToString(), 10.0)

    async def answer(self, call: Call) -> Reply:
        """Answers a call of the runtime."""
        if call.method == "Synchronize":
            listed = nri.SynchronizeRequest.FromString(call.payload)
            self.containers = {container.id: container for container in listed.containers}
            self.synchronized.set()
            return Reply(nri.SynchronizeResponse(more=listed.more).SerializeToString())
        request = _REQUESTS[call.method].FromString(call.payload) if call.method in _REQUESTS else None
        if request is not None:
            self.calls.append((call.method, request))
        answer = self.answers.get(call.method)
        return Reply(answer(request).SerializeToString() if answer is not None else b"")

    async def run(self, socket: Path) -> None:
        """Serves the runtime until the connection ends."""
        mux = Mux(*await asyncio.open_unix_connection(socket))
        self._client = Client(partial(mux.send, RUNTIME_CONNECTION))
        try:
            async with asyncio.TaskGroup() as group:
                server = Server(self.answer, partial(mux.send, PLUGIN_CONNECTION), group)
                group.create_task(self._register())
                await mux.run({PLUGIN_CONNECTION: server.receive, RUNTIME_CONNECTION: self._client.receive})
        except* ConnectionEndedError:
            pass
        finally:
            mux.close()

    async def _register(self) -> None:
        assert self._client is not None
        request = nri.RegisterPluginRequest(plugin_name="small", plugin_idx="50")
        await self._client.call(_RUNTIME, "RegisterPlugin", request.SerializeToString())


def refusal(message: str) -> StatusError:
    """Makes the error with which a plugin refuses a call."""
    return StatusError(Code.UNKNOWN, message)


def created(*, score: int | None = None, **given: Any) -> Message:
    """Builds an answer to CreateContainer, with the arguments of `resources`."""
    answer = nri.CreateContainerResponse()
    answer.adjust.linux.resources.CopyFrom(resources(**given))
    if score is not None:
        answer.adjust.linux.oom_score_adj.value = score
    return answer


def updated(request: nri.UpdateContainerRequest, **given: Any) -> Message:
    """Builds an answer to UpdateContainer, about the container that is updated, with the arguments of `resources`."""
    change = nri.ContainerUpdate(container_id=request.container.id)
    change.linux.resources.CopyFrom(resources(**given))
    return nri.UpdateContainerResponse(update=[change])


def resources(*, memory: int = 0, mems: str = "", pages: int | None = None, **unified: str) -> nri.LinuxResources:
    """Builds resources. `unified` has the names of cgroup files with _ for each dot; `pages` is NRI's own limit of
    hugepages of 2 MiB."""
    made = nri.LinuxResources(unified={name.replace("_", "."): text for name, text in unified.items()})
    made.cpu.mems = mems
    if memory:
        made.memory.limit.value = memory
    if pages is not None:
        made.hugepage_limits.add(page_size="2MB", limit=pages)
    return made


@asynccontextmanager
async def small_plugin(socket: Path) -> AsyncIterator[SmallPlugin]:
    """Connects a plugin, and waits until the runtime has listed its containers: then it calls the plugin's hooks."""
    plugin = SmallPlugin()
    running = asyncio.create_task(plugin.run(socket))
    try:
        async with asyncio.timeout(10):
            await plugin.synchronized.wait()
        yield plugin
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

"""A handler for the NRI plugin that records its calls and returns the answers that a test sets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from dracpu_agent.placement.container import Container, ContainerUpdate, Placement, RuntimeInfo
from dracpu_agent.runtime.plugin import NriPlugin, ReconnectDelays
from dracpu_api.cpuset import CpuSet

SHARED = CpuSet.parse("4-7")
AT_ONCE = ReconnectDelays(first=0.001, longest=0.001, list_again=0.001)


async def _allow(_pod_uid: str) -> None:
    """Allows a pod's resize."""


class RecordingHandler:
    """Places every container on the same CPUs, unless a test sets other answers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # method, and the container's id or another detail
        self.runtime = RuntimeInfo()
        self.containers: list[Container] = []  # of the last synchronize
        self.created_with: dict[str, Container] = {}  # container id -> argument of `create`
        self.sync_updates: Callable[[Sequence[Container]], Sequence[ContainerUpdate]] = lambda _: ()
        self.place: Callable[[Container], Awaitable[Placement]] | None = None
        self.on_start: Callable[[Container], None] = lambda _: None
        self.on_update: Callable[[Container], ContainerUpdate | None] = lambda changed: ContainerUpdate(
            changed.id, SHARED
        )
        self.on_resize: Callable[[str], Awaitable[None]] = _allow
        self.on_stop: Callable[[str], Sequence[ContainerUpdate]] = lambda _: ()
        self.on_synchronized: Callable[[], None] = lambda: None
        self.on_notice: Callable[[str], None] = lambda _: None  # created, started, updated and removed
        self.is_synchronized = asyncio.Event()
        self.is_disconnected = asyncio.Event()

    def connected(self, runtime: RuntimeInfo) -> None:
        self.runtime = runtime
        self.calls.append(("connected", runtime.name))

    def synchronize(self, containers: Sequence[Container]) -> Sequence[ContainerUpdate]:
        self.calls.append(("synchronize", str(len(containers))))
        self.containers = list(containers)
        return self.sync_updates(containers)

    def synchronized(self) -> None:
        self.calls.append(("synchronized", ""))
        self.on_synchronized()
        self.is_disconnected.clear()
        self.is_synchronized.set()

    async def create(self, container: Container) -> Placement:
        self.calls.append(("create", container.id))
        self.created_with[container.id] = container
        return Placement(SHARED) if self.place is None else await self.place(container)

    def created(self, container_id: str) -> None:
        self.calls.append(("created", container_id))
        self.on_notice(container_id)

    async def start(self, container: Container) -> None:
        self.calls.append(("start", container.id))
        self.on_start(container)

    def started(self, container: Container) -> None:
        self.calls.append(("started", container.id))
        self.on_notice(container.id)

    def update(self, container: Container) -> ContainerUpdate | None:
        self.calls.append(("update", container.id))
        return self.on_update(container)

    def updated(self, container: Container) -> None:
        self.calls.append(("updated", container.id))
        self.on_notice(container.id)

    async def resize_pod(self, pod_uid: str) -> None:
        self.calls.append(("resize_pod", pod_uid))
        await self.on_resize(pod_uid)

    def stopped(self, container_id: str) -> Sequence[ContainerUpdate]:
        self.calls.append(("stopped", container_id))
        return self.on_stop(container_id)

    def removed(self, container_id: str) -> None:
        self.calls.append(("removed", container_id))
        self.on_notice(container_id)

    def disconnected(self, reason: str) -> None:
        self.calls.append(("disconnected", reason))
        self.is_synchronized.clear()
        self.is_disconnected.set()

    def calls_about(self, container_id: str) -> list[str]:
        """The methods called for one container, in order."""
        return [method for method, about in self.calls if about == container_id]


@asynccontextmanager
async def running(
    socket: Path,
    handler: RecordingHandler,
    *,
    name: str = "dra-cpu",
    index: str = "45",
    answered: Callable[[str, float], None] | None = None,
    delays: ReconnectDelays = AT_ONCE,
    serves_memory: bool = False,
) -> AsyncIterator[NriPlugin]:
    """A running plugin that reconnects at once."""
    plugin = NriPlugin(
        socket, handler, name=name, index=index, delays=delays, answered=answered, serves_memory=serves_memory
    )
    task = asyncio.create_task(plugin.run(), name="plugin under test")
    try:
        yield plugin
    finally:
        task.cancel()
        await asyncio.wait((task,))

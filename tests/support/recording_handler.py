"""A hand-written agent behind the NRI plugin: remembers what it was told, and answers what a test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from dracpu_agent.placement.container import Container, ContainerUpdate, Placement, RuntimeInfo
from dracpu_agent.runtime.plugin import Backoff, NriPlugin
from dracpu_api.cpuset import CpuSet

SHARED = CpuSet.parse("4-7")
AT_ONCE = Backoff(first=0.001, longest=0.001)


class RecordingHandler:
    """Puts every container on the same CPUs, until a test says otherwise."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []  # method and container id, or what else matters
        self.runtime = RuntimeInfo()
        self.containers: list[Container] = []  # of the last synchronize
        self.seen: dict[str, Container] = {}
        self.sync_updates: Callable[[Sequence[Container]], Sequence[ContainerUpdate]] = lambda _: ()
        self.place: Callable[[Container], Awaitable[Placement]] | None = None
        self.on_start: Callable[[Container], None] = lambda _: None
        self.on_update: Callable[[Container], ContainerUpdate | None] = lambda one: ContainerUpdate(one.id, SHARED)
        self.on_stop: Callable[[str], Sequence[ContainerUpdate]] = lambda _: ()
        self.on_synchronized: Callable[[], None] = lambda: None
        self.on_notice: Callable[[str], None] = lambda _: None  # created and removed
        self.is_synchronized = asyncio.Event()
        self.is_disconnected = asyncio.Event()

    def connected(self, runtime: RuntimeInfo) -> None:
        self.runtime = runtime
        self.told.append(("connected", runtime.name))

    def synchronize(self, containers: Sequence[Container]) -> Sequence[ContainerUpdate]:
        self.told.append(("synchronize", str(len(containers))))
        self.containers = list(containers)
        return self.sync_updates(containers)

    def synchronized(self) -> None:
        self.told.append(("synchronized", ""))
        self.on_synchronized()
        self.is_disconnected.clear()
        self.is_synchronized.set()

    async def create(self, container: Container) -> Placement:
        self.told.append(("create", container.id))
        self.seen[container.id] = container
        return Placement(SHARED) if self.place is None else await self.place(container)

    def created(self, container_id: str) -> None:
        self.told.append(("created", container_id))
        self.on_notice(container_id)

    def start(self, container: Container) -> None:
        self.told.append(("start", container.id))
        self.on_start(container)

    def update(self, container: Container) -> ContainerUpdate | None:
        self.told.append(("update", container.id))
        return self.on_update(container)

    def stopped(self, container_id: str) -> Sequence[ContainerUpdate]:
        self.told.append(("stopped", container_id))
        return self.on_stop(container_id)

    def removed(self, container_id: str) -> None:
        self.told.append(("removed", container_id))
        self.on_notice(container_id)

    def disconnected(self, reason: str) -> None:
        self.told.append(("disconnected", reason))
        self.is_synchronized.clear()
        self.is_disconnected.set()

    def told_of(self, container_id: str) -> list[str]:
        """The calls about one container, in order."""
        return [method for method, about in self.told if about == container_id]


@asynccontextmanager
async def running(
    socket: Path,
    handler: RecordingHandler,
    *,
    name: str = "dra-cpu",
    index: str = "45",
    answered: Callable[[str, float], None] | None = None,
) -> AsyncIterator[NriPlugin]:
    """A plugin that reconnects at once."""
    plugin = NriPlugin(socket, handler, name=name, index=index, backoff=AT_ONCE, answered=answered)
    task = asyncio.create_task(plugin.run(), name="plugin under test")
    try:
        yield plugin
    finally:
        task.cancel()
        await asyncio.wait((task,))

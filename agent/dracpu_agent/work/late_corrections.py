"""Gives containers that run without limits of their claims these limits, without harm to them and to others.

Such containers were started or resized while no agent was connected. A limit below the use of a program would kill it,
and the runtime would do nothing else while it binds a container whose memory has to move. So the agent writes these
files itself, one at a time and in a thread, and sends the runtime only what is in force already.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NoReturn, ParamSpec, Protocol, TypeVar

import structlog

from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.host.container_usage import ContainerUsage
from dracpu_agent.memory.correction import Step, Use, next_step, right
from dracpu_agent.memory.existing import MEMORY_MAX
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container
from dracpu_agent.topology.topology import TopologyError
from dracpu_agent.work.changes import Changes, Follower

AGAIN_SECONDS: Final = 30.0  # after a step, or while a program uses too much for the next one
WRITE_SECONDS: Final = 10.0  # a container with much memory takes longer; the others wait for it

log = structlog.get_logger("memory")

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Cgroups(Protocol):
    """The cgroups of containers. The methods block, and raise CgroupError."""

    def read(self, pod_uid: str, container_id: str) -> ContainerUsage | None:
        """Reads how much a container uses; None: it has no cgroup."""

    def write(self, pod_uid: str, container_id: str, name: str, text: str) -> bool:
        """Writes a file; False: it has no cgroup."""


class LateCorrections:
    """Corrects one container after the other; `count` is called with each file that was written."""

    def __init__(
        self,
        node: NodeState,
        cgroups: Cgroups,
        read_free: Callable[[], Mapping[int, int]],
        changes: Changes,
        count: Callable[[str], None],
    ) -> None:
        """`read_free` returns the free bytes of each NUMA node; it blocks and raises TopologyError."""
        self._containers = node.containers
        self._cgroups = cgroups
        self._read_free = read_free
        self._follower = Follower(changes)
        self._count = count
        self._due: dict[str, float] = {}  # container -> when it is looked at again
        self._failed: set[str] = set()  # containers whose failure is in the log
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="corrections")
        self._in_thread: asyncio.Future[Any] | None = None

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            late = self._containers.late()
            ids = {container.id for container, _ in late}
            self._due = {known: due for known, due in self._due.items() if known in ids}
            self._failed &= ids
            for container, wanted in late:
                if self._due.get(container.id, 0) <= loop.time():
                    await self._correct(container, dict(wanted))
                    self._due[container.id] = loop.time() + AGAIN_SECONDS
            await self._follower.next(until=min(self._due.values(), default=None))

    async def _correct(self, container: Container, wanted: Mapping[str, str]) -> None:
        try:
            while MEMORY_MAX in wanted and await self._take_step(container, wanted):
                pass
        except (CgroupError, TopologyError, TimeoutError) as error:
            if container.id not in self._failed:
                self._failed.add(container.id)
                log.warning("container still without limits of its claims", container=str(container), error=str(error))

    async def _take_step(self, container: Container, wanted: Mapping[str, str]) -> bool:
        """Returns whether another step may follow now."""
        place = container.pod_uid, container.id
        usage = await self._run(self._cgroups.read, *place)
        if usage is None:
            return False
        use = _use(usage)
        found = right(wanted, use)
        if not found.items() <= dict(container.recorded).items():
            self._containers.corrected(container.id, found)
        step = next_step(wanted, use, await self._run(self._read_free))
        if step is None or not await self._run(self._cgroups.write, *place, step.file, step.content):
            return False
        self._written(container, step, wanted)
        return step.content == wanted[step.file]

    def _written(self, container: Container, step: Step, wanted: Mapping[str, str]) -> None:
        log.info(
            "limit of a container's claims corrected while it runs",
            container=str(container),
            file=step.file,
            content=step.content,
            wanted=wanted[step.file],
        )
        self._count(step.file)
        self._containers.corrected(container.id, {step.file: step.content})

    async def _run(self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs blocking work in the thread. Work that takes long goes on, and nothing else begins before it has ended;
        the next look finds what it has done."""
        if self._in_thread is None or self._in_thread.done():
            self._in_thread = asyncio.wrap_future(self._thread.submit(work, *args, **kwargs))
            done, _ = await asyncio.wait((self._in_thread,), timeout=WRITE_SECONDS)
            if done:
                result: _T = self._in_thread.result()
                return result
            self._in_thread.add_done_callback(_ignore_result)
        raise TimeoutError("the kernel still moves or frees memory of a container")


def _ignore_result(work: asyncio.Future[Any]) -> None:
    """Keeps asyncio from reporting an error that the next look will meet again."""
    if not work.cancelled():
        work.exception()


def _use(usage: ContainerUsage) -> Use:
    return Use(
        used=usage.current,
        clean=max(0, usage.file - usage.shmem - usage.unwritten - usage.unevictable),
        limit=usage.limit,
        nodes=usage.nodes,
        by_node={numa: part.anon + part.file for numa, part in usage.numa.items()},
        pages={numa: sum(part.pages.values()) for numa, part in usage.numa.items()},
        untouched=max(0, sum(usage.reserved.values()) - sum(usage.pages.values())) if usage.reserved else 0,
        is_located=_is_located(usage),
    )


def _is_located(usage: ContainerUsage) -> bool:
    """Whether the kernel has counted on which NUMA nodes the memory and the pages of each size are."""
    ordinary = sum(part.anon + part.file for part in usage.numa.values())
    pages = Counter[int]()
    for part in usage.numa.values():
        pages.update(part.pages)
    has_pages = all(pages[size] >= used for size, used in usage.pages.items())
    return has_pages and (ordinary > 0 or usage.anon + usage.file == 0)

"""Reports containers that the kernel has killed because they used more memory than their claims have.

Neither the kubelet nor the runtime shows that the limit was that of a claim. The cgroup of a container that has ended
disappears soon. So it is read as soon as the kernel reports that the last process in it has ended; where the runtime
was faster, the cgroup of the pod shows what has happened in it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, Protocol

import structlog

from dracpu_agent.cluster.events import Events, Subject
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.file_threads import in_cgroup_thread
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.host.inotify import FileWatch, WatchError, opened_watch
from dracpu_agent.memory.kills import NOTHING, OomCounts
from dracpu_agent.memory.kinds import MEMORY
from dracpu_agent.node import NodeState
from dracpu_agent.work.changes import Changes, Follower
from dracpu_agent.work.memory_users import MemoryUser, memory_users

REASON: Final = "KilledAtMemoryClaim"

log = structlog.get_logger("memory")


class Counts(Protocol):
    """The cgroups of pods and containers. The methods block, raise CgroupError, and return None without the cgroup."""

    def of_container(self, pod_uid: str, container_id: str) -> OomCounts | None:
        """Reads the counts of a container's cgroup."""

    def of_containers(self, pod_uid: str) -> OomCounts | None:
        """Reads the counts of the cgroups of a pod's containers, also of those that have ended."""

    def end_of(self, pod_uid: str, container_id: str) -> Path | None:
        """The file that the kernel modifies when the last process of a container has ended."""


@dataclass(slots=True)
class _Watched:
    """A container whose claims limit its memory."""

    user: MemoryUser
    file: Path | None = None  # that is watched
    before: OomCounts = NOTHING  # in its own cgroup


@dataclass(slots=True)
class _Pod:
    """A pod with such containers."""

    containers: frozenset[str]  # all of them, with or without claims
    before: OomCounts | None  # in the cgroups of its containers; None: not known
    watched: dict[str, _Watched] = field(default_factory=dict)


class MemoryKills:
    """Watches the containers; `count` is called for each that was killed at its claim."""

    def __init__(
        self,
        node: NodeState,
        driver: MemoryDriver,
        counts: Counts,
        changes: Changes,
        events: Events,
        count: Callable[[], None],
        open_watch: Callable[[], FileWatch] = FileWatch,
    ) -> None:
        """`open_watch` raises WatchError."""
        self._node = node
        self._driver = driver
        self._counts = counts
        self._follower = Follower(changes)
        self._events = events
        self._count = count
        self._open_watch = open_watch
        self._is_unwatched = False  # that was logged
        self._pods: dict[str, _Pod] = {}
        self._files: dict[Path, tuple[str, str]] = {}  # watched file -> UID of the pod and id of the container
        self._turn = asyncio.Lock()  # what is known of a pod is compared and replaced in one step

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        with await opened_watch(self._note_unwatched, self._open_watch) as watch:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_containers(watch), name="containers with claims of memory")
                group.create_task(self._follow_ends(watch), name="ends of containers with claims of memory")
        raise AssertionError("its tasks never end")

    def _note_unwatched(self, error: WatchError) -> None:
        if not self._is_unwatched:
            log.warning("containers that are killed at their claims of memory are not reported", error=str(error))
        self._is_unwatched = True

    async def _follow_containers(self, watch: FileWatch) -> NoReturn:
        while True:
            await self._follower.next()
            async with self._turn:
                await self._look(watch)

    async def _follow_ends(self, watch: FileWatch) -> None:
        async for changes in watch:
            files = self._files if changes.overflow else changes.modified | changes.ended
            for pod_uid, container_id in sorted({self._files[file] for file in files if file in self._files}):
                async with self._turn:
                    pod = self._pods.get(pod_uid)
                    if pod is not None and container_id in pod.watched:
                        await self._judge(pod, pod.watched[container_id])

    async def _look(self, watch: FileWatch) -> None:
        """Compares the present containers with the former ones."""
        users = {user.container.id: user for user in memory_users(self._node, self._driver) if _is_limited(user)}
        if not (users or self._pods):
            return
        present: dict[str, set[str]] = {}
        for container, _ in self._node.containers:
            present.setdefault(container.pod_uid, set()).add(container.id)
        for pod_uid in {*self._pods, *(user.container.pod_uid for user in users.values())}:
            await self._look_at_pod(pod_uid, frozenset(present.get(pod_uid, ())), users, watch)

    async def _look_at_pod(
        self, pod_uid: str, present: frozenset[str], users: dict[str, MemoryUser], watch: FileWatch
    ) -> None:
        pod = self._pods.get(pod_uid)
        if pod is None:
            pod = self._pods[pod_uid] = _Pod(present, await self._count_in(pod_uid))
        elif ended := pod.containers - present:
            await self._judge_ended(pod_uid, pod, ended)
        for container_id in sorted(pod.watched.keys() - present):
            self._forget(watch, pod.watched.pop(container_id))
        pod.containers = present
        for container_id in sorted(present & users.keys()):
            found = pod.watched.setdefault(container_id, _Watched(users[container_id]))
            found.user = users[container_id]
            if found.file is None:
                await self._begin(watch, pod, found)
        if not pod.watched and not present & users.keys():
            del self._pods[pod_uid]

    async def _judge_ended(self, pod_uid: str, pod: _Pod, ended: frozenset[str]) -> None:
        """Some containers have ended. What their own cgroups do not show any more, that of the pod shows; it does not
        show which container it was, so a single one must have ended."""
        for container_id in sorted(ended & pod.watched.keys()):
            await self._judge(pod, pod.watched[container_id])
        now = await self._count_in(pod_uid)
        if now is not None and pod.before is not None and now.since(pod.before).killed_at_limit and len(ended) == 1:
            for container_id in ended & pod.watched.keys():
                self._report(pod.watched[container_id].user)
        pod.before = now

    async def _judge(self, pod: _Pod, watched: _Watched) -> None:
        """Reports the container if its own cgroup shows that it was killed at its limit."""
        container = watched.user.container
        try:
            now = await in_cgroup_thread(self._counts.of_container, container.pod_uid, container.id)
        except CgroupError as error:
            log.debug("a container's cgroup cannot be read", container=str(container), error=str(error))
            return
        added = NOTHING if now is None else now.since(watched.before)
        if added.killed_at_limit:
            watched.before = watched.before.plus(added)
            if pod.before is not None:
                pod.before = pod.before.plus(added)  # the pod has counted it, too
            self._report(watched.user)

    async def _begin(self, watch: FileWatch, pod: _Pod, found: _Watched) -> None:
        """Watches a container, unless it has no cgroup yet: the runtime makes it before it reports the start."""
        container = found.user.container
        try:
            file = await in_cgroup_thread(self._counts.end_of, container.pod_uid, container.id)
            if file is None or not watch.add(file):
                return
            found.file = file
            self._files[file] = (container.pod_uid, container.id)
            if container.placed:  # since this agent runs, so everything that its cgroup has counted is new
                await self._judge(pod, found)
            else:
                before = await in_cgroup_thread(self._counts.of_container, container.pod_uid, container.id)
                found.before = before or NOTHING
        except (CgroupError, WatchError) as error:
            log.debug("the end of a container cannot be watched", container=str(container), error=str(error))

    async def _count_in(self, pod_uid: str) -> OomCounts | None:
        try:
            return await in_cgroup_thread(self._counts.of_containers, pod_uid)
        except CgroupError as error:
            log.debug("a pod's cgroup cannot be read", pod=pod_uid, error=str(error))
            return None

    def _forget(self, watch: FileWatch, watched: _Watched) -> None:
        if watched.file is not None:
            watch.remove(watched.file)
            self._files.pop(watched.file, None)

    def _report(self, user: MemoryUser) -> None:
        container = user.container
        note = (
            f"the kernel killed container {container.name}, because it used all memory that it may use: "
            f"{user.text(MEMORY)}; request more in the claim, or let the program use less"
        )
        log.warning("container killed at its claim of memory", container=str(container), claims=user.text(MEMORY))
        pod = Subject.pod(container.namespace, container.pod_name, container.pod_uid)
        self._events.emit(pod, "Warning", REASON, "Limit", note)
        self._count()


def _is_limited(user: MemoryUser) -> bool:
    """Whether the claims limit the container: the limit of its spec holds where it is smaller."""
    limit = user.container.memory_limit
    return user.ordinary > 0 and (limit is None or user.ordinary <= limit)

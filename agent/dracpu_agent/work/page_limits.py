"""Keeps the limits of hugepages in the cgroups of pods that have claims of them.

The kubelet writes into a pod's cgroup what the pod's spec asks for, usually 0, and writes 0 with each in-place resize,
after every hook of the runtime. So the limits are written before a container of the pod is created, and again whenever
something else has written them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, Protocol

import structlog

from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import ClaimError
from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.host.cgroup_errors import BusyLimitError, CgroupError, PodGoneError
from dracpu_agent.host.hugetlb import UNLIMITED
from dracpu_agent.host.inotify import FileWatch, WatchError
from dracpu_agent.work.changes import Changes, Follower

AGAIN_SECONDS: Final = 1.0  # after a limit could not be written, for example because pages are in use
LOOK_SECONDS: Final = 30.0  # between two looks at all pods, in case no event was reported

log = structlog.get_logger("pages")


class Cgroups(Protocol):
    """The cgroups of pods. The methods block, and raise CgroupError."""

    def read(self, pod_uid: str) -> Mapping[int, int] | None:
        """The pod's limits: size of a page -> bytes, UNLIMITED without a limit. None: it has no cgroup."""

    def write(self, pod_uid: str, limits: Mapping[int, int]) -> bool:
        """Writes those that differ, and returns whether any did."""

    def files(self, pod_uid: str) -> Sequence[Path]:
        """The files with the limits; none if the pod has no cgroup."""


class PageLimits:
    """Writes the limits of pods; `count_repair` is called when something else had written other ones."""

    def __init__(
        self,
        driver: MemoryDriver,
        cgroups: Cgroups,
        state_file: StateFile,
        changes: Changes,
        count_repair: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._cgroups = cgroups
        self._state_file = state_file
        self._follower = Follower(changes)
        self._count_repair = count_repair
        self._watch: FileWatch | None = None  # while the agent runs
        self._files: dict[Path, str] = {}  # the watched files, and the UID of the pod that each belongs to
        self._locks: dict[str, asyncio.Lock] = {}  # of each pod
        self._recovered: frozenset[str] = frozenset()  # pods to whose limits an earlier agent may have added claims
        self._written: dict[str, Mapping[int, int]] = {}  # what was written for each pod last
        self._failed: set[str] = set()

    def recovered(self) -> None:
        """The claims of an earlier agent are in the ledger. If its record of pods is lost, their cgroups have the
        claims already."""
        pods = self._driver.pods
        self._recovered = pods.claiming - pods.known

    async def ensure(self, pod_uid: str) -> None:
        """Makes sure that the cgroup of a pod allows what its spec and its claims say; does nothing for a pod without
        claims of pages, or without a cgroup. Raises CgroupError and ClaimError."""
        pods = self._driver.pods
        if pod_uid not in pods.claiming and pod_uid not in pods.known:
            return
        async with self._locks.setdefault(pod_uid, asyncio.Lock()):
            await self._follow(pod_uid)  # before the limits are read: no change of them is missed
            if pod_uid not in pods.known:
                found = await in_file_thread(self._cgroups.read, pod_uid)
                if found is None:
                    return
                limited = {page: limit for page, limit in found.items() if limit < UNLIMITED}
                pods.learn(pod_uid, limited, with_claims=pod_uid in self._recovered)
                await self._state_file.save()  # before the claims are added to what was found
            limits = pods.limits(pod_uid)
            was_changed = await in_file_thread(self._cgroups.write, pod_uid, limits)
            if was_changed and self._written.get(pod_uid) == limits:
                log.info("limits of a pod's hugepages repaired", pod=pod_uid)
                self._count_repair()
            self._written[pod_uid] = limits

    async def run(self) -> NoReturn:
        """Follows changes of claims, and what others write, until cancelled."""
        with FileWatch() as watch:
            self._watch = watch
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._repair(watch), name="repairs of limits")
                    group.create_task(self._look_at_all(), name="limits of all pods")
            finally:
                self._watch = None
        raise AssertionError("its tasks never end")

    async def _look_at_all(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            for pod_uid in sorted(self._driver.pods.claiming | self._driver.pods.known):
                await self._look_at(pod_uid)
            await self._follower.next(until=loop.time() + (AGAIN_SECONDS if self._failed else LOOK_SECONDS))

    async def _repair(self, watch: FileWatch) -> None:
        async for changes in watch:
            files = self._files if changes.overflow else changes.modified | changes.ended
            for pod_uid in sorted({self._files[file] for file in files if file in self._files}):
                await self._look_at(pod_uid)

    async def _look_at(self, pod_uid: str) -> None:
        pods = self._driver.pods
        try:
            if pod_uid not in pods.claiming and await in_file_thread(self._cgroups.read, pod_uid) is None:
                self._forget(pod_uid)
                return
            await self.ensure(pod_uid)
        except (CgroupError, ClaimError) as error:
            if pod_uid not in self._failed and not isinstance(error, BusyLimitError | PodGoneError):
                log.error("the limits of a pod's hugepages cannot be written, retrying", pod=pod_uid, error=str(error))
            self._failed.add(pod_uid)
        else:
            self._failed.discard(pod_uid)

    async def _follow(self, pod_uid: str) -> None:
        """Watches the limits of a pod; without a watch, they are looked at from time to time. A pod that is watched is
        watched anew: it may have another cgroup than before."""
        if self._watch is None:
            return
        for file in await in_file_thread(self._cgroups.files, pod_uid):
            try:
                if self._watch.add(file):
                    self._files[file] = pod_uid
            except WatchError as error:
                log.warning("limits of a pod's hugepages are repaired late", pod=pod_uid, error=str(error))
                return

    def _forget(self, pod_uid: str) -> None:
        """The pod is gone, and so are its claims."""
        self._driver.pods.forget(pod_uid)
        for file in [file for file, pod in self._files.items() if pod == pod_uid]:
            del self._files[file]
            if self._watch is not None:
                self._watch.remove(file)
        self._written.pop(pod_uid, None)
        self._failed.discard(pod_uid)
        lock = self._locks.get(pod_uid)  # the other task may have forgotten the pod meanwhile
        if lock is not None and not lock.locked():
            del self._locks[pod_uid]
        self._state_file.save_soon()

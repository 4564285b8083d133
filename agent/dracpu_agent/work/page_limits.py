"""Keeps the limits of hugepages in the cgroups of pods that have claims of them.

The kubelet writes into a pod's cgroup how many pages the pod's spec requests, usually 0, and writes 0 with each
in-place resize, after every hook of the runtime. So the limits are written before a container of the pod is created,
and again whenever something else has written them.

Nothing here waits for the kernel without a bound: a cgroup that hangs delays neither the answer to the runtime nor the
limits of other pods, and it leaves threads for checkpoints and CDI files.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, ParamSpec, Protocol, TypeVar

import structlog

from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import ClaimError
from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.host.cgroup_errors import BusyLimitError, CgroupError, CgroupTimeoutError, PodGoneError
from dracpu_agent.host.hugetlb import UNLIMITED
from dracpu_agent.host.inotify import WATCH_AGAIN_SECONDS, FileWatch, WatchError, opened_watch
from dracpu_agent.memory.pods import Pages
from dracpu_agent.work.changes import Changes, Follower

HOOK_SECONDS: Final = 1.0  # of the runtime's 2 s for a hook; a look at a pod takes some milliseconds
PREPARE_SECONDS: Final = 5.0  # of the kubelet's 45 s for a claim, which has other pods and other steps
CALLS: Final = 4  # at the same time, of the 8 threads for work on files

log = structlog.get_logger("pages")

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between looks at pods."""

    again: float = 1.0  # after a limit could not be written, for example because pages are in use
    all: float = 30.0  # between two looks at all pods, in case no event was reported
    unwatched: float = 5.0  # likewise, while files cannot be watched
    watch_again: float = WATCH_AGAIN_SECONDS


PACE: Final = Pace()


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
        *,
        open_watch: Callable[[], FileWatch] = FileWatch,
        pace: Pace = PACE,
    ) -> None:
        """`open_watch` raises WatchError."""
        self._driver = driver
        self._cgroups = cgroups
        self._state_file = state_file
        self._follower = Follower(changes)
        self._count_repair = count_repair
        self._open_watch = open_watch
        self._pace = pace
        self._calls = asyncio.Semaphore(CALLS)
        self._watch: FileWatch | None = None  # while the agent runs and can watch files
        self._files: dict[Path, str] = {}  # the watched files, and the UID of the pod that each belongs to
        self._unwatched: set[str] = set()  # pods of which a file cannot be watched
        self._is_late = False  # that files cannot be watched was reported
        self._recovered: frozenset[str] = frozenset()  # pods to whose limits an earlier agent may have added claims
        self._locks: dict[str, asyncio.Lock] = {}  # of each pod
        self._running: set[asyncio.Task[None]] = set()  # looks at pods
        self._waiting: dict[str, asyncio.Task[None]] = {}  # those of them that have not begun, by pod
        self._seen: dict[str, Pages] = {}  # what the claims of each pod had at the last look
        self._written: dict[str, Pages] = {}  # what was written for each pod last
        self._failed: set[str] = set()  # pods that are looked at again soon

    def recovered(self) -> None:
        """The claims of an earlier agent are in the ledger. If its record of pods is lost, their cgroups have the
        claims already."""
        pods = self._driver.pods
        self._recovered = pods.claiming - pods.known

    async def ensure(self, pod_uid: str, seconds: float = HOOK_SECONDS) -> None:
        """Makes sure that the cgroup of a pod allows what its spec requests and what its claims have; does nothing for
        a pod without claims of pages, or without a cgroup. Raises CgroupError, which may be a CgroupTimeoutError, and
        ClaimError."""
        if pod_uid not in self._concerned():
            return
        look = self._look(pod_uid)
        done, _ = await asyncio.wait((look,), timeout=seconds)
        if not done:
            raise CgroupTimeoutError(pod_uid, seconds)
        look.result()

    async def run(self) -> NoReturn:
        """Follows changes of claims, and what others write, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_files(), name="repairs of limits")
                group.create_task(self._look_at_pods(), name="limits of all pods")
        finally:
            for look in self._running:
                look.cancel()
        raise AssertionError("its tasks never end")

    def _concerned(self) -> frozenset[str]:
        return self._driver.pods.claiming | self._driver.pods.known

    # ---- when pods are looked at

    async def _look_at_pods(self) -> NoReturn:
        """Looks at pods whose claims have changed, soon at those where that failed, and from time to time at all."""
        loop = asyncio.get_running_loop()
        all_at = again_at = loop.time()
        while True:
            concerned, now = self._concerned(), loop.time()
            due = {pod for pod in concerned if self._seen.get(pod) != self._driver.pods.claimed(pod)}
            self._failed &= concerned
            if now >= again_at:
                due |= self._failed
            if now >= all_at:
                due |= concerned
                self._forget_others(concerned)
            await self._look_at(due)
            if now >= all_at:
                all_at = loop.time() + (self._pace.all if self._is_watching() else self._pace.unwatched)
            if now >= again_at:
                again_at = loop.time() + self._pace.again
            await self._follower.next(until=min(all_at, again_at) if self._failed else all_at)

    async def _follow_files(self) -> NoReturn:
        """Repairs limits as soon as something else has written them."""
        while True:
            with await opened_watch(self._report_late, self._open_watch, self._pace.watch_again) as watch:
                self._watch = watch
                try:
                    await self._look_at(self._concerned())  # from now on their files are watched
                    await self._repair(watch)
                finally:
                    self._watch = None
                    self._files.clear()

    async def _repair(self, watch: FileWatch) -> None:
        async with asyncio.TaskGroup() as group:  # no look waits for that at another pod
            async for changes in watch:
                files = self._files if changes.overflow else changes.modified | changes.ended
                for pod_uid in {self._files[file] for file in files if file in self._files}:
                    group.create_task(self._look_at_one(pod_uid), name=f"repair of pod {pod_uid}")

    async def _look_at(self, pod_uids: Collection[str]) -> None:
        async with asyncio.TaskGroup() as group:
            for pod_uid in sorted(pod_uids):
                group.create_task(self._look_at_one(pod_uid), name=f"look at pod {pod_uid}")

    async def _look_at_one(self, pod_uid: str) -> None:
        self._seen[pod_uid] = self._driver.pods.claimed(pod_uid)
        try:
            await self.ensure(pod_uid)
        except PodGoneError:  # its containers, if it gets any, are not created before another look
            self._failed.discard(pod_uid)
        except (CgroupError, ClaimError) as error:
            if pod_uid not in self._failed and not isinstance(error, BusyLimitError):
                log.error("the limits of a pod's hugepages cannot be written, retrying", pod=pod_uid, error=str(error))
            self._failed.add(pod_uid)
        else:
            self._failed.discard(pod_uid)

    def _forget_others(self, concerned: Collection[str]) -> None:
        """Forgets pods that never had a cgroup, and whose claims have ended."""
        for known in (self._seen, self._written, self._locks):
            for pod_uid in known.keys() - concerned:
                if pod_uid not in self._locks or not self._locks[pod_uid].locked():
                    known.pop(pod_uid)
        self._unwatched.intersection_update(concerned)

    # ---- one look

    def _look(self, pod_uid: str) -> "asyncio.Task[None]":
        """A look at a pod that has not begun yet: one that has may not include the latest change of its claims. So a
        pod has two at most, however many tasks wait for them: one that may hang, and another that waits for it."""
        look = self._waiting.get(pod_uid)
        if look is None:
            look = asyncio.create_task(self._bring_up_to_date(pod_uid), name=f"limits of pod {pod_uid}")
            self._waiting[pod_uid] = look
            self._running.add(look)
            look.add_done_callback(self._ended)
        return look

    def _ended(self, look: "asyncio.Task[None]") -> None:
        self._running.discard(look)
        if not look.cancelled():
            look.exception()  # so that asyncio does not report it: after a timeout, the next look reports it

    async def _bring_up_to_date(self, pod_uid: str) -> None:
        pods = self._driver.pods
        try:
            async with self._locks.setdefault(pod_uid, asyncio.Lock()):
                del self._waiting[pod_uid]
                await self._follow(pod_uid)  # before the limits are read: no change of them is missed
                found = await self._call(self._cgroups.read, pod_uid)
                if found is None and pod_uid not in pods.claiming:
                    self._forget(pod_uid)
                elif found is not None:
                    await self._learn(pod_uid, found)  # before the claims are added to what was found
                    await self._write(pod_uid, found)
                elif pod_uid in pods.known:
                    await self._write(pod_uid, {})  # fails with the reason
        finally:
            if self._waiting.get(pod_uid) is asyncio.current_task():  # it was cancelled before it began
                del self._waiting[pod_uid]

    async def _learn(self, pod_uid: str, found: Pages) -> None:
        """Stores the limits that were not known before, of sizes that the kubelet has limited by now."""
        pods = self._driver.pods
        own = {page: limit for page, limit in found.items() if limit < UNLIMITED and page not in pods.own(pod_uid)}
        if own or pod_uid not in pods.known:
            pods.learn(pod_uid, own, with_claims=pod_uid in self._recovered - pods.known)
            await self._state_file.save()

    async def _write(self, pod_uid: str, found: Pages) -> None:
        written = self._written.get(pod_uid)
        limits = self._driver.pods.limits_to_write(pod_uid, found, written or {})
        was_changed = await self._call(self._cgroups.write, pod_uid, limits)
        if was_changed and written == limits:
            log.info("limits of a pod's hugepages repaired", pod=pod_uid)
            self._count_repair()
        self._written[pod_uid] = limits

    async def _call(self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        async with self._calls:
            return await in_file_thread(work, *args, **kwargs)

    def _forget(self, pod_uid: str) -> None:
        """The pod is gone, and so are its claims."""
        self._driver.pods.forget(pod_uid)
        for file in [file for file, pod in self._files.items() if pod == pod_uid]:
            del self._files[file]
            if self._watch is not None:
                self._watch.remove(file)
        self._state_file.save_soon()

    # ---- watches

    async def _follow(self, pod_uid: str) -> None:
        """Watches the limits of a pod. One that is watched is watched anew: it may have another cgroup than before."""
        watch = self._watch
        if watch is None:
            return
        files = await self._call(self._cgroups.files, pod_uid)
        if watch is not self._watch:  # it has ended meanwhile
            return
        try:
            self._files |= {file: pod_uid for file in files if watch.add(file)}
        except WatchError as error:
            self._unwatched.add(pod_uid)
            self._report_late(error)
        else:
            self._unwatched.discard(pod_uid)
            if self._is_watching():
                self._is_late = False

    def _is_watching(self) -> bool:
        return self._watch is not None and not self._unwatched

    def _report_late(self, error: WatchError) -> None:
        if not self._is_late:
            delay = f"{self._pace.unwatched:g} s"
            log.warning(f"limits of hugepages that others change are repaired up to {delay} late", error=str(error))
        self._is_late = True

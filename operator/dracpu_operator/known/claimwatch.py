"""Follows the claims of the whole cluster: one list, page by page, then a watch.

A claim's devices are in its status, so lists and watches carry whole objects, some 3 KB each, and no selector narrows
them to a node. So claims are followed only while they are needed, and a change of a node's devices needs no list of its
own. Instead, `refresh` lets the watch catch up:

1. A list of one object shows the version that the claims have now. The API server answers it from a state that is not
   older than the request.
2. A watch of three seconds, from the last version that was seen, sends what happened since then, and after one second
   a bookmark, because its end is near. Once an event or the bookmark has reached the version of step 1, nothing is
   missing that was allocated before the request.

A watch alone would not do. It may lag behind, and when its connection is dead, that is noticed after 90 seconds only; a
node settles for ten seconds by default. What is allocated later than the request arrives through the watch, while the
node settles. Where the API server sends no bookmarks, the claims are listed again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, Protocol, Self

import structlog

from dracpu_api.answers import WatchEvent
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ExpiredError, SilentError
from dracpu_api.resources import RESOURCE_CLAIMS, Json, Resource
from dracpu_operator.decide.outstanding import AllocatedClaims
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.follow import Scope

log = structlog.get_logger()

_CLAIMS: Final = Scope(RESOURCE_CLAIMS)
_WATCH_SECONDS: Final = 240
_CATCH_UP_SECONDS: Final = 3  # kube-apiserver sends a bookmark two seconds before the end of a watch
_ATTEMPTS: Final = 5  # of several API servers, each may be behind


class Source(Protocol):
    """Lists and watches objects; raises ApiError."""

    def pages(self, scope: Scope) -> AsyncIterator[Json]:
        """Yields a list of all objects, page by page."""

    async def version(self, resource: Resource) -> int:
        """Returns the version that the objects have at this moment."""

    def watch(
        self, scope: Scope, since: str, *, seconds: int
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Opens a watch of what happens after a version; raises ExpiredError when that version is too old."""


class ClaimWatch:
    """The allocated claims, as an async context manager that ends the watch.

    `on_change` is called with the nodes whose claims have changed, and `on_end` when the claims have to be listed
    again.
    """

    def __init__(
        self,
        source: Source,
        intervals: Intervals,
        on_change: Callable[[Collection[str]], None],
        on_end: Callable[[], None],
    ) -> None:
        self.claims = AllocatedClaims()
        self._source = source
        self._intervals = intervals
        self._on_change = on_change
        self._on_end = on_end
        self._version = ""  # from which a watch continues; "": a list has to come first
        self._tasks = asyncio.TaskGroup()
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pause()
        await self._tasks.__aexit__(kind, error, trace)

    @property
    def is_complete(self) -> bool:
        """True when `claims` has all claims, though the watch may lag behind."""
        return bool(self._version)

    async def start(self) -> None:
        """Lists the claims unless they are followed already. Raises ApiError."""
        if not self.is_complete:
            await self.refresh()

    async def refresh(self) -> None:
        """Makes `claims` as new as this moment. Raises ApiError."""
        await self._pause()
        try:
            if self.is_complete:
                await self._catch_up()
            if not self.is_complete:
                await self._list()
        finally:
            if self.is_complete:
                self._watching = self._tasks.create_task(self._watch(), name="claims")

    async def stop(self) -> None:
        """Ends the watch and forgets all claims."""
        await self._pause()
        self._version = ""
        self.claims = AllocatedClaims()

    async def _pause(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None

    async def _list(self) -> None:
        uids, changed, version = set[str](), set[str](), ""
        async for page in self._source.pages(_CLAIMS):
            version = version or page["metadata"]["resourceVersion"]
            for raw in page.get("items") or ():
                uids.add(raw["metadata"]["uid"])
                changed |= self.claims.store(raw)
        changed |= self.claims.keep(uids)
        self._version = version
        self._on_change(changed)
        log.info("claims listed, following them", claims=len(uids), allocated=len(self.claims))

    async def _catch_up(self) -> None:
        target = 0
        for _ in range(_ATTEMPTS):
            # of several API servers, the one that answers is up to date itself afterwards
            present = await self._source.version(RESOURCE_CLAIMS)
            target = target or present
            if present < int(self._version):  # restored from a backup
                break
            try:
                await self._follow(_CATCH_UP_SECONDS, target)
            except ExpiredError:
                break
            if int(self._version) >= target:
                return
        else:
            log.warning("the watch of claims did not catch up", version=self._version, target=target)
        self._version = ""

    async def _watch(self) -> None:
        """Follows until cancelled, or until a list is needed."""
        backoff = Backoff(self._intervals.retry_first, self._intervals.retry_cap)
        problem, is_silent = "", False
        while self.is_complete:
            try:
                if is_silent:
                    await self._catch_up()
                    is_silent = False
                else:
                    await self._follow(_WATCH_SECONDS)
            except SilentError:
                is_silent = True
            except ExpiredError:
                self._version = ""
            except ApiError as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("watching claims failed, trying again", error=problem)
                await asyncio.sleep(backoff.next(error))
            else:
                problem = ""
                backoff.reset()
                await asyncio.sleep(self._intervals.debounce)  # in case every watch ends at once
        log.info("claims have to be listed again")
        self._on_end()

    async def _follow(self, seconds: int, target: float = float("inf")) -> None:
        """Takes over what happens, for so many seconds or until a version is reached."""
        if int(self._version) >= target:
            return
        async with self._source.watch(_CLAIMS, self._version, seconds=seconds) as events:
            async for event in events:
                self._take_over(event)
                if int(self._version) >= target:
                    return

    def _take_over(self, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        changed = set[str]()
        if event.type == "DELETED":
            changed = self.claims.remove(metadata["uid"])
        elif event.type != "BOOKMARK":
            changed = self.claims.store(event.object)
        self._version = metadata["resourceVersion"]
        if changed:
            self._on_change(changed)

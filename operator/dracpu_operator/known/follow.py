"""Follows one kind of objects: lists all of them page by page, then follows the watch.

It lists again when the API server no longer has the events since the last one. A watch that is silent for too long is
opened again from the version that it has reached. kopf does the same, but needs more than two milliseconds of a
processor for each event.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NoReturn, Protocol

import structlog

from dracpu_api.answers import WatchEvent
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ExpiredError, ForbiddenError, SilentError
from dracpu_api.resources import Json, Resource, resource_version
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.standing import Standing

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Scope:
    """The objects to follow."""

    resource: Resource
    namespace: str = ""  # "": all namespaces
    selector: str = ""  # of labels; "": all objects
    metadata_only: bool = False
    busy: bool = False  # events come all the time, and few of them change a decision: they may be late for a moment


class Sink(Protocol):
    """Takes over what lists and watches show. Lists, watches and others may call it in any order."""

    def store(self, raw: Json, *, watched: bool = False) -> None:
        """Records an object that exists, in this version or a newer one; `watched`: a watch has shown it."""

    def remove(self, name: str, uid: str, version: float) -> None:
        """Removes an object; `version` is that of its deletion."""

    def advance(self, version: int) -> None:
        """Notes that a list or the watch has shown everything up to this version."""

    def recheck(self, listed: Mapping[str, int], version: int) -> None:
        """Takes over a complete list, which shows this version: all objects are gone but those that are `listed`, by
        UID and with their versions, and those that are newer than the list."""


class Source(Protocol):
    """Lists and watches objects; raises ApiError."""

    def pages(self, scope: Scope) -> AsyncIterator[Json]:
        """Yields a list of all objects, page by page."""

    async def version(self, resource: Resource, *, namespace: str = "") -> int:
        """Returns the version that objects have at this moment."""

    def watch(
        self, scope: Scope, since: str, *, gathering: float = 0.0
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Opens a watch: the block begins when the API server has accepted it. Events that come soon after others may
        be late by `gathering` seconds. Raises ExpiredError when the version is too old, and SilentError when nothing
        arrives for some time."""


async def list_all(source: Source, scope: Scope, sink: Sink) -> str:
    """Takes over a complete list; returns the version that it shows. A watch may take over events meanwhile."""
    version = ""
    listed: dict[str, int] = {}
    async for page in source.pages(scope):
        version = version or page["metadata"]["resourceVersion"]  # later pages may show later states
        for raw in page.get("items") or ():
            listed[raw["metadata"]["uid"]] = resource_version(raw)
            sink.store(raw)
    sink.recheck(listed, int(version))
    sink.advance(int(version))
    return version


class Follower:
    """Follows the objects of a scope and records them in a sink.

    `is_settled` is set once all objects have been listed, or when the API server does not allow it and `on_refused` is
    given: the operator then works without these objects. `on_older` is called when the API server shows an older
    version than before, as after a restore from a backup.
    """

    def __init__(
        self,
        source: Source,
        scope: Scope,
        sink: Sink,
        intervals: Intervals,
        *,
        on_older: Callable[[], None],
        on_refused: Callable[[], None] | None = None,
    ) -> None:
        self.scope = scope
        self.is_settled = asyncio.Event()
        self.standing = Standing(scope.resource.plural, intervals.blind)
        self._source = source
        self._sink = sink
        self._intervals = intervals
        self._on_older = on_older
        self._on_refused = on_refused
        self._version = ""  # from which a watch continues; "": a list has to come first
        self._highest = 0  # of all versions that a list or a watch has shown
        self._is_silent = False  # the last watch has sent nothing any more
        self._listed_at = float("-inf")

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        backoff = Backoff(self._intervals.retry_first, self._intervals.retry_cap)
        while True:
            try:
                if self._is_silent:
                    await self._check_version()
                if not self._version:
                    self._version = await self._list()
                await self._follow(backoff)
            except ApiError as error:
                self._failed(error)
                has_just_listed = _now() - self._listed_at < self._intervals.retry_cap
                if not isinstance(error, ExpiredError) or has_just_listed:
                    await asyncio.sleep(backoff.next_spread(error))
            else:
                await asyncio.sleep(self._intervals.debounce)  # in case every watch ends at once

    async def _check_version(self) -> None:
        """After a silent watch, finds out whether the API server has the version from which another one continues."""
        scope = self.scope
        if await self._source.version(scope.resource, namespace=scope.namespace) < int(self._version):
            self._on_older()
            self._version = ""
        self._is_silent = False

    async def _list(self) -> str:
        highest = self._highest
        version = await list_all(self._source, self.scope, self._sink)
        self._note_version(int(version), known=highest)
        self.standing.listed()
        self.is_settled.set()
        self._listed_at = _now()
        return version

    async def _follow(self, backoff: Backoff) -> None:
        gathering = self._intervals.gathering if self.scope.busy else 0.0
        async with self._source.watch(self.scope, self._version, gathering=gathering) as events:
            self.standing.accepted()
            began = _now()
            try:
                async for event in events:
                    self._take_over(event)
                    backoff.reset()
            finally:
                self.standing.ended()
                if _now() - began > self._intervals.retry_cap:
                    backoff.reset()

    def _take_over(self, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        version = resource_version(event.object)
        self._note_version(version, known=int(self._version))
        self._version = metadata["resourceVersion"]
        if event.type == "DELETED":
            self._sink.remove(metadata["name"], metadata["uid"], version)
        elif event.type != "BOOKMARK":
            self._sink.store(event.object, watched=True)
        self._sink.advance(version)

    def _note_version(self, version: int, *, known: int) -> None:
        """Compares a version with one that was `known` before the request was sent."""
        if version < known:
            self._on_older()
        self._highest = max(self._highest, version)

    def _failed(self, error: ApiError) -> None:
        if isinstance(error, SilentError):
            self._is_silent = True
            return
        if isinstance(error, ExpiredError):
            self._version = ""
            return
        what, is_new = self.scope.resource.plural, self.standing.failed(str(error))
        if self._on_refused is not None and isinstance(error, ForbiddenError):
            self._version = ""
            self._on_refused()
            self.standing.given_up()
            self.is_settled.set()
            if is_new:
                log.warning("not allowed to follow objects, going on without them", resource=what, error=str(error))
        elif is_new:
            log.warning("following objects failed, trying again", resource=what, error=str(error))


def _now() -> float:
    return asyncio.get_running_loop().time()

"""Follows a small set of objects: lists them, then watches them.

Versions of objects only grow, except when the API server's data is restored from a backup: then they begin again below
versions that clients have seen. A list always shows the present state, so a list counts whatever its version is.

When a CRD is replaced, a watch that is open shows objects without the fields that are new, until the API server ends
it. So after a watch that ends early, all objects are listed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

import structlog

from dracpu_agent.cluster.client import WATCH_SECONDS, ApiClient
from dracpu_api.answers import WatchEvent
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ExpiredError
from dracpu_api.resources import JsonObject, Resource, resource_version

log = structlog.stdlib.get_logger(__name__)

_TOO_SHORT = 1.0  # seconds; if watches end sooner without an event, the server does not support them


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects at one revision."""

    objects: Mapping[str, JsonObject]  # by name
    revision: int
    listed_at: float  # of the loop's clock: when the latest list was requested, which shows everything written before


class Reflector:
    """Calls `on_change` with all objects after each list and after each change.

    `on_change` must be quick: it should store the state and wake a task. After an error of the API server `run`
    retries: it logs when errors begin and end, and passes each of them to `on_error`.
    """

    def __init__(
        self,
        api: ApiClient,
        resource: Resource,
        *,
        field_selector: str,
        on_change: Callable[[Snapshot], None],
        on_error: Callable[[ApiError], None] = lambda error: None,
        backoff: Backoff | None = None,
    ) -> None:
        self._api = api
        self._resource = resource
        self._selector = field_selector
        self._on_change = on_change
        self._on_error = on_error
        self._backoff = backoff or Backoff()
        self._snapshot = Snapshot({}, 0, 0.0)
        self._failing = False

    async def run(self) -> NoReturn:
        """Runs until cancelled. After any error, including 410, it lists again, so that no change is missed."""
        while True:
            try:
                await self._list()
                while await self._watch():
                    pass
            except ApiError as error:
                self._record_failure(error)
                await asyncio.sleep(self._backoff.next(error))

    async def _list(self) -> None:
        listed_at = asyncio.get_running_loop().time()
        answer = await self._api.list(self._resource, field_selector=self._selector)
        objects = {item["metadata"]["name"]: item for item in answer.get("items") or ()}
        self._set(Snapshot(objects, resource_version(answer), listed_at))

    async def _watch(self) -> bool:
        """Watches from the latest revision until the server ends the watch. Returns whether it lasted as long as it was
        requested to."""
        loop = asyncio.get_running_loop()
        began, silent = loop.time(), True
        events = self._api.watch(
            self._resource, resource_version=self._snapshot.revision, field_selector=self._selector
        )
        async with contextlib.aclosing(events):
            async for event in events:
                silent = False
                self._record_success()
                self._apply(event)
        lasted = loop.time() - began
        if silent and lasted < _TOO_SHORT:
            await asyncio.sleep(self._backoff.next())
        else:
            self._record_success()
        return lasted >= WATCH_SECONDS[0]

    def _apply(self, event: WatchEvent) -> None:
        revision = resource_version(event.object)
        if revision < self._snapshot.revision:
            raise ExpiredError(
                f"watch {self._resource.plural}: version {revision} came after {self._snapshot.revision}: "
                "the API server's data was restored from a backup"
            )
        if event.type == "BOOKMARK":
            self._snapshot = replace(self._snapshot, revision=revision)
            return
        objects = dict(self._snapshot.objects)
        if event.type == "DELETED":
            objects.pop(event.object["metadata"]["name"], None)
        else:
            objects[event.object["metadata"]["name"]] = event.object
        self._set(replace(self._snapshot, objects=objects, revision=revision))

    def _set(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._on_change(snapshot)

    def _record_failure(self, error: ApiError) -> None:
        if not self._failing:
            log.warning("cannot watch, retrying", resource=self._resource.plural, error=error.message)
        self._failing = True
        self._on_error(error)

    def _record_success(self) -> None:
        self._backoff.reset()
        if self._failing:
            log.info("watching again after errors", resource=self._resource.plural)
        self._failing = False

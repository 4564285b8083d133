"""Watches objects of the API server, restarts after failures, and includes the caller's own writes at once."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from dracpu_sandbox.client import ConflictError, Event, KubeClient, Mirror
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import JsonObject, Key, Resource, key_of

_RETRY_SECONDS: Final = 0.5
_CONFLICT_SECONDS: Final = 0.02  # another client wrote first: the watch will report it soon
_ENDS_KEPT: Final = 1000

_log = logging.getLogger(__name__)


def pause_after(error: SandboxError) -> float:
    """Returns how many seconds to wait before a retry."""
    return _CONFLICT_SECONDS if isinstance(error, ConflictError) else _RETRY_SECONDS


class Following:
    """All objects of a resource. The caller's own writes are included before the watch reports them."""

    def __init__(
        self, client: KubeClient, resource: Resource, *, fields: str = "", retry: float = _RETRY_SECONDS
    ) -> None:
        self._client, self._resource, self._fields, self._retry = client, resource, fields, retry
        self._listeners: list[Callable[[Event], object]] = []
        self._written: dict[Key, JsonObject] = {}
        self._gone: dict[
            Key, int
        ] = {}  # the last deletions: a write's answer may arrive after the watch has reported the deletion
        self._mirror = self._new_mirror()

    def _new_mirror(self) -> Mirror:
        return Mirror(self._client, self._resource, fields=self._fields, on_change=self._changed)

    def listen(self, listener: Callable[[Event], object]) -> None:
        """Registers a function that is called with every change."""
        self._listeners.append(listener)

    @property
    def ready(self) -> bool:
        """Whether all objects are known. Before that, a missing object may exist."""
        return self._mirror.ready.is_set()

    async def run(self) -> None:
        """Watches until it is cancelled; after an error, all objects are listed again."""
        while True:
            self._mirror = self._new_mirror()
            try:
                await self._mirror.run()
            except SandboxError as error:
                _log.info("%s are listed again: %s", self._resource.plural, error)
                await asyncio.sleep(self._retry)

    def get(self, key: Key) -> JsonObject | None:
        """Returns an object, or None."""
        return self._written.get(key) or self._mirror.items.get(key)

    def all(self) -> Iterable[JsonObject]:
        """Returns all objects."""
        return (self._mirror.items | self._written).values()

    def wrote(self, item: JsonObject) -> None:
        """Remembers the API server's answer to a write."""
        key = key_of(item)
        known = self._mirror.items.get(key)
        newest = _version(known) if known else self._gone.get(key, 0)
        if newest < _version(item):
            self._written[key] = item

    def _changed(self, event: Event) -> None:
        if event.type == "SYNCED":  # an object that was written but is not listed has been deleted
            self._written = {key: item for key, item in self._written.items() if key in self._mirror.items}
        else:
            key, version = key_of(event.object), _version(event.object)
            if event.type == "DELETED":
                self._remember_end(key, version)
            written = self._written.get(key)
            if written and (event.type == "DELETED" or _version(written) <= version):
                del self._written[key]
        for listener in self._listeners:
            listener(event)

    def _remember_end(self, key: Key, version: int) -> None:
        self._gone[key] = version
        if len(self._gone) > _ENDS_KEPT:
            del self._gone[next(iter(self._gone))]


def _version(item: JsonObject) -> int:
    return int(item["metadata"]["resourceVersion"])

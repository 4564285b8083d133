"""Open watches: their scopes, and the events that they have not sent yet."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.refusal import RefusedError, expired
from dracpu_sandbox.apiserver.selectors import Predicate
from dracpu_sandbox.apiserver.store import Change, Store, Stored, at_revision

JsonObject = dict[str, Any]

_LONGEST_QUEUE: Final = 20_000  # events; a client that reads too slowly is cut off, and lists again


@dataclass(frozen=True, slots=True)
class Scope:
    """The objects of a watch: of one resource, in one namespace or all, of one name or all."""

    storage: str
    namespace: str  # "": all
    name: str  # "": all
    selects: Predicate

    def has(self, stored: Stored | None) -> bool:
        """Returns whether an object is in the scope."""
        if stored is None:
            return False
        namespace, name = stored.key
        inside = (not self.namespace or namespace == self.namespace) and (not self.name or name == self.name)
        return inside and self.selects(stored.object)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a watch: the change of an object, a bookmark, or the end of the watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "CUT", "END"]
    object: Stored | None = None
    status: JsonObject | None = None
    revision: int = 0  # of a bookmark: all changes up to it have been sent
    ends_initial: bool = False  # a bookmark after the objects that existed when the watch began


class Watch:
    """One open watch."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.schema: Callable[[JsonObject], JsonObject] | None = None  # an older one: what events show of an object
        self._queue: deque[Event] = deque()
        self._waiting = asyncio.Event()

    def offer(self, change: Change) -> None:
        """Queues the event of a change in the scope. For the client, an object that leaves the scope is deleted."""
        was, is_ = self.scope.has(change.before), change.type != "DELETED" and self.scope.has(change.now)
        if is_:
            self.queue(Event("MODIFIED" if was else "ADDED", change.now))
        elif was and change.type == "DELETED":
            self.queue(Event("DELETED", change.now))
        elif was and change.before is not None:
            self.queue(Event("DELETED", Stored(at_revision(change.before.object, change.revision))))

    def queue(self, *events: Event) -> None:
        """Queues events."""
        self._queue.extend(self._shown(event) for event in events)
        if len(self._queue) > _LONGEST_QUEUE:
            self.cut()
        self._waiting.set()

    def cut(self) -> None:
        """Breaks the connection; events that were not sent yet are lost."""
        self._queue.clear()
        self.queue(Event("CUT"))

    def _shown(self, event: Event) -> Event:
        if self.schema is None or event.object is None:
            return event
        return replace(event, object=Stored(self.schema(event.object.object)))

    async def next(self) -> list[Event]:
        """Waits until an event is queued, and returns all queued events."""
        await self._waiting.wait()
        self._waiting.clear()
        events = list(self._queue)
        self._queue.clear()
        return events


class Watches:
    """All open watches. It queues the changes of the store for them, and injects faults for tests of clients."""

    def __init__(self, store: Store) -> None:
        self.on_count: Callable[[], object] = lambda: None  # called when a watch opens or closes
        self.last_bookmark_seconds = 2.0  # before the end of a watch, as kube-apiserver
        self.flowing = asyncio.Event()  # clear: no events are sent
        self.flowing.set()
        self._store = store
        self._open: dict[str, dict[str, set[Watch]]] = {}  # by storage, then by name or ""
        store.listeners.append(self._on_change)

    def __len__(self) -> int:
        return sum(1 for _ in self._all())

    def open(self, scope: Scope, since: int | None, *, initial: bool) -> Watch:
        """Opens a watch of the changes after a revision; `initial` sends all existing objects first.

        When the revision is too old, the only event is an error, as when the history of an open watch is dropped.
        """
        watch = Watch(scope)
        if initial:
            present = (Event("ADDED", stored) for stored in self._store.all(scope.storage) if scope.has(stored))
            watch.queue(*present, Event("BOOKMARK", revision=self._store.revision, ends_initial=True))
        elif since is not None:
            try:
                for change in self._store.changes_since(scope.storage, since):
                    watch.offer(change)
            except RefusedError as refused:
                watch.queue(Event("ERROR", status=refused.status))
        self._open.setdefault(scope.storage, {}).setdefault(scope.name, set()).add(watch)
        self.on_count()
        return watch

    def close(self, watch: Watch) -> None:
        """Removes a watch."""
        by_name = self._open[watch.scope.storage]
        by_name[watch.scope.name].discard(watch)
        if not by_name[watch.scope.name]:
            del by_name[watch.scope.name]
        self.on_count()

    def bookmark(self) -> None:
        """Sends a bookmark to all watches."""
        self._send_all(self.bookmark_now())

    def bookmark_now(self) -> Event:
        """Returns a bookmark for a watch that has sent all changes."""
        return Event("BOOKMARK", revision=self._store.revision)

    def end(self) -> None:
        """Ends all watches without an error."""
        self._send_all(Event("END"))

    def cut(self) -> None:
        """Breaks the connections of all watches."""
        for watch in self._all():
            watch.cut()

    def expire(self) -> None:
        """Drops the history: watches end with 410, and cannot resume from their last revisions."""
        self._store.forget_history()
        self._send_all(Event("ERROR", status=expired(self._store.revision - 1, self._store.revision).status))

    def keep_schema(self, storage: str, schema: Callable[[JsonObject], JsonObject]) -> None:
        """Shows objects by an older schema in the watches that are open now, as after their CRD was replaced."""
        for watches in self._open.get(storage, {}).values():
            for watch in watches:
                watch.schema = schema

    def hold(self) -> None:
        """Sends no events until `release`."""
        self.flowing.clear()

    def release(self) -> None:
        """Ends `hold` and sends the held events in order."""
        self.flowing.set()

    def _on_change(self, storage: str, change: Change) -> None:
        by_name = self._open.get(storage)
        if by_name:
            for name in ("", change.now.key[1]):
                for watch in by_name.get(name, ()):
                    watch.offer(change)

    def _send_all(self, event: Event) -> None:
        for watch in self._all():
            watch.queue(event)

    def _all(self) -> Iterable[Watch]:
        return (watch for by_name in self._open.values() for watches in by_name.values() for watch in watches)

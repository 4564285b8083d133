"""Watches: who wants to hear of which changes, and what each has not been told yet."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.refusal import RefusedError, expired
from dracpu_sandbox.apiserver.selectors import Predicate
from dracpu_sandbox.apiserver.store import Change, Store, Stored, at_revision

JsonObject = dict[str, Any]

_LONGEST_QUEUE: Final = 20_000  # one that does not read for so long is cut, and lists again


@dataclass(frozen=True, slots=True)
class Scope:
    """What a watch is about: objects of one resource, in a namespace or in all, perhaps of one name."""

    storage: str
    namespace: str  # "": all
    name: str  # "": all
    selects: Predicate

    def has(self, stored: Stored | None) -> bool:
        """Whether an object belongs to it."""
        if stored is None:
            return False
        namespace, name = stored.key
        inside = (not self.namespace or namespace == self.namespace) and (not self.name or name == self.name)
        return inside and self.selects(stored.object)


@dataclass(frozen=True, slots=True)
class Told:
    """Something to say to who watches: an object's change, or a mark."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "CUT", "END"]
    object: Stored | None = None
    status: JsonObject | None = None
    revision: int = 0  # of a bookmark: up to which everything has been told
    ends_initial: bool = False  # a bookmark behind everything that was there at first


class Watch:
    """One open watch."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._queue: deque[Told] = deque()
        self._waiting = asyncio.Event()

    def offer(self, change: Change) -> None:
        """Tells of a change, as far as it concerns the scope: what leaves the selection is deleted, for who watches."""
        was, is_ = self.scope.has(change.before), change.type != "DELETED" and self.scope.has(change.now)
        if is_:
            self.tell(Told("MODIFIED" if was else "ADDED", change.now))
        elif was and change.type == "DELETED":
            self.tell(Told("DELETED", change.now))
        elif was and change.before is not None:
            self.tell(Told("DELETED", Stored(at_revision(change.before.object, change.revision))))

    def tell(self, *told: Told) -> None:
        """Queues something to say."""
        self._queue.extend(told)
        if len(self._queue) > _LONGEST_QUEUE:
            self._queue.clear()
            self._queue.append(Told("CUT"))
        self._waiting.set()

    async def next(self) -> list[Told]:
        """Everything that has not been said yet; waits until there is something."""
        await self._waiting.wait()
        self._waiting.clear()
        told = list(self._queue)
        self._queue.clear()
        return told


class Watches:
    """All open watches; it listens to the store. The faults are for tests of those who watch."""

    def __init__(self, store: Store) -> None:
        self.on_count: Callable[[], object] = lambda: None  # called when there is one more or one less
        self.flowing = asyncio.Event()  # clear: nobody is told anything
        self.flowing.set()
        self._store = store
        self._open: dict[str, dict[str, set[Watch]]] = {}  # by storage, then by the one name or ""
        store.listeners.append(self._hear)

    def __len__(self) -> int:
        return sum(1 for _ in self._all())

    def open(self, scope: Scope, since: int | None, *, initial: bool) -> Watch:
        """A new watch of what changes after a revision; `initial`: of everything that is there, first.

        A revision that is forgotten is told of in the watch, as one that was open would be told.
        """
        watch = Watch(scope)
        if initial:
            present = (Told("ADDED", stored) for stored in self._store.all(scope.storage) if scope.has(stored))
            watch.tell(*present, Told("BOOKMARK", revision=self._store.revision, ends_initial=True))
        elif since is not None:
            try:
                for change in self._store.changes_since(scope.storage, since):
                    watch.offer(change)
            except RefusedError as refused:
                watch.tell(Told("ERROR", status=refused.status))
        self._open.setdefault(scope.storage, {}).setdefault(scope.name, set()).add(watch)
        self.on_count()
        return watch

    def close(self, watch: Watch) -> None:
        """It wants to hear nothing more."""
        by_name = self._open[watch.scope.storage]
        by_name[watch.scope.name].discard(watch)
        if not by_name[watch.scope.name]:
            del by_name[watch.scope.name]
        self.on_count()

    def bookmark(self) -> None:
        """Tells all watches how far they are."""
        self._tell_all(self.bookmark_now())

    def bookmark_now(self) -> Told:
        """What a watch that has been told everything may be told."""
        return Told("BOOKMARK", revision=self._store.revision)

    def end(self) -> None:
        """Ends all watches, politely."""
        self._tell_all(Told("END"))

    def cut(self) -> None:
        """Breaks the connections of all watches."""
        self._tell_all(Told("CUT"))

    def expire(self) -> None:
        """Forgets the history: watches end, and cannot go on where they were."""
        self._store.forget_history()
        self._tell_all(Told("ERROR", status=expired(self._store.revision - 1, self._store.revision).status))

    def hold(self) -> None:
        """Tells nothing new until `release`."""
        self.flowing.clear()

    def release(self) -> None:
        """The end of `hold`: what was held comes in order."""
        self.flowing.set()

    def _hear(self, storage: str, change: Change) -> None:
        by_name = self._open.get(storage)
        if by_name:
            for name in ("", change.now.key[1]):
                for watch in by_name.get(name, ()):
                    watch.offer(change)

    def _tell_all(self, told: Told) -> None:
        for watch in self._all():
            watch.tell(told)

    def _all(self) -> Iterable[Watch]:
        return (watch for by_name in self._open.values() for watches in by_name.values() for watch in watches)

"""Keeps the objects in memory, with their history.

Stored objects are replaced and never changed, so that callers may keep them, and each object is encoded once. Each
change has its own revision. The latest changes are kept, so that a watch can resume where it ended, and all pages of a
list show the same revision.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.refusal import expired

JsonObject = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for objects of the cluster) and name

_KEPT_CHANGES: Final = 4096  # of each resource: enough for the start of a fleet of 200 nodes


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """One state of an object. `forms` keeps its encoded forms."""

    object: JsonObject
    forms: dict[Hashable, bytes] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Returns the object's namespace and name."""
        metadata = self.object["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change of one object. After a deletion, `now` is its last state, with the revision of the deletion."""

    revision: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    before: Stored | None
    now: Stored


Listener = Callable[[str, Change], None]  # called with the storage and the change


class _Collection:
    """The objects of one resource."""

    def __init__(self, oldest: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.changes: deque[Change] = deque()
        self.oldest = oldest  # the changes after this revision are kept


class Store:
    """All objects, by their storage (like `cpunodes.dra.cpu`), namespace and name."""

    def __init__(self) -> None:
        self.revision = 1
        self.listeners: list[Listener] = []
        self._collections: dict[str, _Collection] = {}
        self._forgotten = 0  # no changes up to this revision are kept

    def get(self, storage: str, key: Key) -> Stored | None:
        """Returns one object, or None."""
        collection = self._collections.get(storage)
        return collection.objects.get(key) if collection else None

    def all(self, storage: str) -> list[Stored]:
        """Returns all objects of a resource, in the order of their keys."""
        collection = self._collections.get(storage)
        return [collection.objects[key] for key in sorted(collection.objects)] if collection else []

    def everything(self) -> Iterator[tuple[str, Stored]]:
        """Yields all objects of all resources, with their storage."""
        for storage in tuple(self._collections):
            for stored in self.all(storage):
                yield storage, stored

    def all_at(self, storage: str, revision: int) -> list[Stored]:
        """Returns all objects as they were at a revision; raises RefusedError when it is too old."""
        objects = dict(self._collection(storage).objects)
        for change in reversed(self.changes_since(storage, revision)):
            if change.before is None:
                del objects[change.now.key]
            else:
                objects[change.now.key] = change.before
        return [objects[key] for key in sorted(objects)]

    def changes_since(self, storage: str, revision: int) -> list[Change]:
        """Returns the changes after a revision, the oldest first; raises RefusedError when they are not kept.

        A revision above the present one comes from an earlier run of the server, and is refused as well.
        """
        collection = self._collection(storage)
        if revision < collection.oldest or revision > self.revision:
            raise expired(revision, collection.oldest)
        found = []
        for change in reversed(collection.changes):
            if change.revision <= revision:
                break
            found.append(change)
        return found[::-1]

    def put(self, storage: str, key: Key, body: JsonObject) -> Stored:
        """Stores an object under the next revision."""
        collection = self._collection(storage)
        before = collection.objects.get(key)
        now = self._next(body)
        collection.objects[key] = now
        self._publish(
            storage, collection, Change(self.revision, "ADDED" if before is None else "MODIFIED", before, now)
        )
        return now

    def remove(self, storage: str, key: Key, last: JsonObject | None = None) -> Stored:
        """Removes an object; watches get `last` as its last state, if it differs from the stored one."""
        collection = self._collection(storage)
        before = collection.objects.pop(key)
        now = self._next(before.object if last is None else last)
        self._publish(storage, collection, Change(self.revision, "DELETED", before, now))
        return now

    def forget_history(self) -> None:
        """Drops all kept changes, so that no watch can resume from an earlier revision."""
        self.revision += 1
        self._forgotten = self.revision
        for collection in self._collections.values():
            collection.changes.clear()
            collection.oldest = self.revision

    def backup(self) -> Callable[[], None]:
        """Returns a function that brings back the present objects and the present revision, without any event, as when
        etcd is restored from a backup."""
        revision, kept = self.revision, {name: dict(held.objects) for name, held in self._collections.items()}

        def restore() -> None:
            self.revision = self._forgotten = revision
            self._collections.clear()
            for name, objects in kept.items():
                self._collection(name).objects = objects

        return restore

    def _collection(self, storage: str) -> _Collection:
        if storage not in self._collections:
            self._collections[storage] = _Collection(self._forgotten)
        return self._collections[storage]

    def _next(self, body: JsonObject) -> Stored:
        self.revision += 1
        return Stored(at_revision(body, self.revision))

    def _publish(self, storage: str, collection: _Collection, change: Change) -> None:
        collection.changes.append(change)
        if len(collection.changes) > _KEPT_CHANGES:
            collection.oldest = collection.changes.popleft().revision
        for listener in self.listeners:
            listener(storage, change)


def at_revision(body: JsonObject, revision: int) -> JsonObject:
    """Returns the object with a resourceVersion."""
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(revision)}}

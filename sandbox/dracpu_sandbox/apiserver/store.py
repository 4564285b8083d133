"""The objects, in memory, with their history.

Stored objects are never changed, only replaced: whoever has one may keep it, and what is made from it (its encoded
form) is made once. Each change has a revision of its own; the latest changes are remembered, so that a watch can go on
where it ended, and a list can be read in pages that all show the same moment.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.refusal import expired

JsonObject = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for objects of the cluster) and name

_REMEMBERED: Final = 4096  # changes of a resource: a fleet of 200 nodes starting does not outrun its watches


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """One state of an object. `forms` keeps how it was shown before, by the form."""

    object: JsonObject
    forms: dict[Hashable, bytes] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Where it lies among its kind."""
        metadata = self.object["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What happened to one object. After a deletion, `now` is its last state, with the deletion's revision."""

    revision: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    before: Stored | None
    now: Stored


Listener = Callable[[str, Change], None]  # hears the storage and the change


class _Collection:
    """The objects of one resource."""

    def __init__(self, oldest: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.changes: deque[Change] = deque()
        self.oldest = oldest  # what changed after this revision is remembered


class Store:
    """All objects, by their storage (like `cpunodes.dra.cpu`), namespace and name."""

    def __init__(self) -> None:
        self.revision = 1
        self.listeners: list[Listener] = []
        self._collections: dict[str, _Collection] = {}
        self._forgotten = 0  # what changed up to this revision is remembered nowhere

    def get(self, storage: str, key: Key) -> Stored | None:
        """One object."""
        collection = self._collections.get(storage)
        return collection.objects.get(key) if collection else None

    def all(self, storage: str) -> list[Stored]:
        """All objects of a resource, in the order of their keys."""
        collection = self._collections.get(storage)
        return [collection.objects[key] for key in sorted(collection.objects)] if collection else []

    def everything(self) -> Iterator[tuple[str, Stored]]:
        """All objects of all resources, with their storage."""
        for storage in tuple(self._collections):
            for stored in self.all(storage):
                yield storage, stored

    def all_at(self, storage: str, revision: int) -> list[Stored]:
        """All objects as they were at a revision; raises RefusedError when that is forgotten."""
        objects = dict(self._collection(storage).objects)
        for change in reversed(self.changes_since(storage, revision)):
            if change.before is None:
                del objects[change.now.key]
            else:
                objects[change.now.key] = change.before
        return [objects[key] for key in sorted(objects)]

    def changes_since(self, storage: str, revision: int) -> list[Change]:
        """The changes after a revision, the oldest first; raises RefusedError when they are forgotten.

        A revision from the future is from another life of this server, whose memory is gone: the answer is the same.
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
        self._tell(storage, collection, Change(self.revision, "ADDED" if before is None else "MODIFIED", before, now))
        return now

    def remove(self, storage: str, key: Key, last: JsonObject | None = None) -> Stored:
        """Forgets an object that is there; `last` is how it shall be remembered, if not as it is."""
        collection = self._collection(storage)
        before = collection.objects.pop(key)
        now = self._next(before.object if last is None else last)
        self._tell(storage, collection, Change(self.revision, "DELETED", before, now))
        return now

    def forget_history(self) -> None:
        """No watch can go on from a revision before this moment."""
        self.revision += 1
        self._forgotten = self.revision
        for collection in self._collections.values():
            collection.changes.clear()
            collection.oldest = self.revision

    def _collection(self, storage: str) -> _Collection:
        if storage not in self._collections:
            self._collections[storage] = _Collection(self._forgotten)
        return self._collections[storage]

    def _next(self, body: JsonObject) -> Stored:
        self.revision += 1
        return Stored(at_revision(body, self.revision))

    def _tell(self, storage: str, collection: _Collection, change: Change) -> None:
        collection.changes.append(change)
        if len(collection.changes) > _REMEMBERED:
            collection.oldest = collection.changes.popleft().revision
        for listener in self.listeners:
            listener(storage, change)


def at_revision(body: JsonObject, revision: int) -> JsonObject:
    """The object with that resourceVersion."""
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(revision)}}

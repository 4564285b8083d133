"""Garbage collector: deletes objects whose owners are all deleted, and the contents of deleted namespaces and kinds.

In a real cluster, controllers do this. Here the server does it soon after the change that makes it necessary.
"""

import asyncio
from typing import Any, Final

from dracpu_sandbox.apiserver.deletion import CONTENTS_FINALIZERS, Deletion
from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.objects import Objects, Writing
from dracpu_sandbox.apiserver.store import Change, Key, Stored
from dracpu_sandbox.apiserver.strategies import CRDS, NAMESPACES

JsonObject = dict[str, Any]
_Place = tuple[str, Key]  # the storage, and the key in it

_WRITING: Final = Writing(manager="garbage-collector")


class GarbageCollector:
    """Follows all changes of the store, and deletes objects in a task of its own."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._places: dict[str, _Place] = {}  # of all objects, by UID
        self._dependents: dict[str, set[_Place]] = {}  # by their owner's UID
        self._pending: dict[_Place, None] = {}  # the objects to check, in order
        self._scheduled = asyncio.Event()
        for storage, stored in objects.store.everything():
            self._add(storage, stored)
        objects.store.listeners.append(self._on_change)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self._scheduled.wait()
            self._scheduled.clear()
            while self._pending:
                place = next(iter(self._pending))
                del self._pending[place]
                self._check(place)
                await asyncio.sleep(0)  # a large namespace must not delay other requests

    def _on_change(self, storage: str, change: Change) -> None:
        place = (storage, change.now.key)
        if change.before is not None:
            for uid in _owners(change.before):
                self._dependents.get(uid, set()).discard(place)
        if change.type == "DELETED":
            self._remove(place, change.now)
            return
        self._add(storage, change.now)
        metadata = change.now.object["metadata"]
        if "deletionTimestamp" in metadata or metadata.get("ownerReferences"):
            self._schedule_check(place)

    def _add(self, storage: str, stored: Stored) -> None:
        place = (storage, stored.key)
        self._places[stored.object["metadata"]["uid"]] = place
        for uid in _owners(stored):
            self._dependents.setdefault(uid, set()).add(place)

    def _remove(self, place: _Place, last: Stored) -> None:
        uid = last.object["metadata"]["uid"]
        self._places.pop(uid, None)
        for dependent in self._dependents.pop(uid, ()):
            self._schedule_check(dependent)
        storage, (namespace, _) = place
        if namespace:
            self._schedule_check((NAMESPACES, ("", namespace)))
        self._schedule_check((CRDS, ("", storage)))  # a definition has the name of its objects' storage

    def _schedule_check(self, place: _Place) -> None:
        self._pending[place] = None
        self._scheduled.set()

    def _check(self, place: _Place) -> None:
        storage, key = place
        stored, kind = self._objects.store.get(storage, key), self._kind(storage)
        if stored is None or kind is None:
            return
        metadata = stored.object["metadata"]
        if CONTENTS_FINALIZERS.get(storage) in (metadata.get("finalizers") or ()):
            self._empty(kind, stored)
        elif metadata.get("ownerReferences") and not any(uid in self._places for uid in _owners(stored)):
            self._delete(place)

    def _empty(self, kind: Kind, stored: Stored) -> None:
        """Deletes the contents of a namespace or a definition; removes its finalizer when nothing is left."""
        _, name = stored.key
        contents = [
            (storage, content.key)
            for storage, content in self._objects.store.everything()
            if (content.key[0] if kind.storage == NAMESPACES else storage) == name
        ]
        for place in contents:
            self._delete(place)
        if not contents:
            metadata = stored.object["metadata"]
            left = [finalizer for finalizer in metadata["finalizers"] if finalizer != CONTENTS_FINALIZERS[kind.storage]]
            changed = {**metadata, "finalizers": left}
            self._objects.patch(kind, "", name, lambda shown: {**shown, "metadata": changed}, _WRITING)

    def _delete(self, place: _Place) -> None:
        stored, kind = self._objects.store.get(*place), self._kind(place[0])
        if stored is None or kind is None or "deletionTimestamp" in stored.object["metadata"]:
            return
        namespace, name = stored.key
        self._objects.delete(kind, namespace, name, Deletion(uid=stored.object["metadata"]["uid"]))

    def _kind(self, storage: str) -> Kind | None:
        return next((kind for kind in self._objects.registry.all() if kind.resource == storage), None)


def _owners(stored: Stored) -> list[str]:
    return [owner["uid"] for owner in stored.object["metadata"].get("ownerReferences") or ()]

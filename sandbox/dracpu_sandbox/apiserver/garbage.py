"""What goes when something else goes: objects whose owners are gone, what is in a namespace, what a definition defined.

Real clusters have controllers for this; here the server does it itself, soon after the change that asks for it.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from dracpu_sandbox.apiserver import strategies
from dracpu_sandbox.apiserver.deletion import FOREGROUND, ORPHAN, Deletion
from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.objects import Objects, Writing
from dracpu_sandbox.apiserver.store import Change, Key, Stored

JsonObject = dict[str, Any]
_Place = tuple[str, Key]  # the storage, and the key in it

_WRITING: Final = Writing(manager="garbage-collector")


class GarbageCollector:
    """Hears of all changes, and tidies up in a task of its own."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._places: dict[str, _Place] = {}  # of all objects, by UID
        self._dependents: dict[str, set[_Place]] = {}  # by their owner's UID
        self._doubtful: dict[_Place, None] = {}  # what to look at, in order
        self._called = asyncio.Event()
        for storage, stored in objects.store.everything():
            self._note(storage, stored)
        objects.store.listeners.append(self._hear)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._called.wait()
            self._called.clear()
            while self._doubtful:
                place = next(iter(self._doubtful))
                del self._doubtful[place]
                self._look_at(place)
                await asyncio.sleep(0)  # a big namespace must not hold up who asks meanwhile

    # Hearing

    def _hear(self, storage: str, change: Change) -> None:
        place = (storage, change.now.key)
        if change.before is not None:
            for uid in _owners(change.before):
                self._dependents.get(uid, set()).discard(place)
        if change.type == "DELETED":
            self._forget(place, change.now)
        else:
            self._note(storage, change.now)
            metadata = change.now.object["metadata"]
            if "deletionTimestamp" in metadata or metadata.get("ownerReferences"):
                self._doubt(place)

    def _note(self, storage: str, stored: Stored) -> None:
        place = (storage, stored.key)
        self._places[stored.object["metadata"]["uid"]] = place
        for uid in _owners(stored):
            self._dependents.setdefault(uid, set()).add(place)

    def _forget(self, place: _Place, last: Stored) -> None:
        uid = last.object["metadata"]["uid"]
        self._places.pop(uid, None)
        for dependent in self._dependents.pop(uid, ()):
            self._doubt(dependent)
        for owner in _owners(last):
            if owner in self._places:
                self._doubt(self._places[owner])
        storage, (namespace, _) = place
        if namespace:
            self._doubt((strategies.NAMESPACES, ("", namespace)))
        self._doubt((strategies.CRDS, ("", storage)))  # definitions are named like what they define

    def _doubt(self, place: _Place) -> None:
        self._doubtful[place] = None
        self._called.set()

    # Tidying up

    def _look_at(self, place: _Place) -> None:
        storage, key = place
        stored = self._objects.store.get(storage, key)
        kind = self._kind(storage)
        if stored is None or kind is None:
            return
        metadata = stored.object["metadata"]
        if "deletionTimestamp" in metadata:
            self._go_on_deleting(kind, stored)
        elif metadata.get("ownerReferences") and not any(uid in self._places for uid in _owners(stored)):
            self._delete(place, "Background")

    def _go_on_deleting(self, kind: Kind, stored: Stored) -> None:
        metadata = stored.object["metadata"]
        finalizers = metadata.get("finalizers") or ()
        dependents = sorted(self._dependents.get(metadata["uid"], ()))
        if ORPHAN in finalizers:
            for place in dependents:
                self._disown(place, metadata["uid"])
            self._finalize(kind, stored, ORPHAN)
        elif FOREGROUND in finalizers:
            if not any(self._blocks(place, metadata["uid"]) for place in dependents):
                self._finalize(kind, stored, FOREGROUND)
            for place in dependents:
                self._delete(place, "Foreground")
        elif kind.storage == strategies.NAMESPACES:
            self._empty_namespace(kind, stored)
        elif strategies.CRD_FINALIZER in finalizers:
            self._empty_definition(kind, stored)

    def _empty_namespace(self, kind: Kind, stored: Stored) -> None:
        _, name = stored.key
        inside = [(storage, one.key) for storage, one in self._objects.store.everything() if one.key[0] == name]
        if inside:
            self._delete_all(inside)
        elif stored.object["spec"].get("finalizers"):
            emptied = {**stored.object, "spec": {**stored.object["spec"], "finalizers": []}}
            self._objects.patch(kind, "", name, lambda one: emptied, _WRITING, "finalize")

    def _empty_definition(self, kind: Kind, stored: Stored) -> None:
        _, storage = stored.key
        inside = [(storage, one.key) for one in self._objects.store.all(storage)]
        if inside:
            self._delete_all(inside)
        else:
            self._finalize(kind, stored, strategies.CRD_FINALIZER)

    def _delete_all(self, places: Iterable[_Place]) -> None:
        for place in places:
            self._delete(place, "Background")

    def _delete(self, place: _Place, propagation: str) -> None:
        stored, kind = self._objects.store.get(*place), self._kind(place[0])
        if stored is None or kind is None or "deletionTimestamp" in stored.object["metadata"]:
            return
        uid = stored.object["metadata"]["uid"]
        namespace, name = stored.key
        self._objects.delete(kind, namespace, name, Deletion(propagation=propagation, uid=uid))

    def _finalize(self, kind: Kind, stored: Stored, finalizer: str) -> None:
        metadata = stored.object["metadata"]
        left = [one for one in metadata["finalizers"] if one != finalizer]
        self._change(kind, stored, finalizers=left)

    def _disown(self, place: _Place, uid: str) -> None:
        stored, kind = self._objects.store.get(*place), self._kind(place[0])
        if stored is not None and kind is not None:
            owners = [one for one in stored.object["metadata"]["ownerReferences"] if one["uid"] != uid]
            self._change(kind, stored, ownerReferences=owners)

    def _change(self, kind: Kind, stored: Stored, **metadata: Any) -> None:
        changed = {**stored.object["metadata"], **metadata}
        namespace, name = stored.key
        self._objects.patch(kind, namespace, name, lambda one: {**one, "metadata": changed}, _WRITING)

    def _blocks(self, place: _Place, uid: str) -> bool:
        """Whether a dependent must be gone before its owner goes."""
        stored = self._objects.store.get(*place)
        references = stored.object["metadata"]["ownerReferences"] if stored else ()
        return any(one["uid"] == uid and one.get("blockOwnerDeletion") for one in references)

    def _kind(self, storage: str) -> Kind | None:
        return next((kind for kind in self._objects.registry.all() if kind.resource == storage), None)


def _owners(stored: Stored) -> list[str]:
    return [one["uid"] for one in stored.object["metadata"].get("ownerReferences") or ()]

"""The objects of the fake API server: a store with versions, events and the ways of writing that Kubernetes has."""

import copy
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

JsonObject = dict[str, Any]

_LIST_KEYS = {  # lists that are maps
    "conditions": ("type",),
    "devices": ("driver", "pool", "device", "shareID"),
    "outstanding": ("uid",),
}
_WITH_STATUS = ("cpudriverconfigs", "cpunodes", "resourceclaims", "nodes")
_DEVICE_FIELDS = {
    "DRAConsumableCapacity": ("allowMultipleAllocations", "requestPolicy"),
    "DRADeviceTaints": ("taints",),
}


class StatusError(Exception):
    """Becomes the answer: a Status object."""

    def __init__(self, code: int, reason: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
        self.body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message} | {
            "reason": reason,
            "code": code,
        }


class ObjectStore:
    """Objects by plural, then by "name" or "namespace/name"; `tell` hears of each change (plural, watch event)."""

    def __init__(self, tell: Callable[[str, JsonObject], None]) -> None:
        self.revision = 1
        self.disabled_gates: set[str] = set()
        self.admission: list[Callable[[str, JsonObject], JsonObject]] = []
        self._tell = tell
        self._objects: dict[str, dict[str, JsonObject]] = {}
        self._applied: dict[tuple[str, str, str], JsonObject] = {}  # uid, subresource, manager -> last applied

    def get(self, plural: str, key: str) -> JsonObject:
        """A copy of one object."""
        return copy.deepcopy(self._stored(plural, key))

    def all(self, plural: str) -> dict[str, JsonObject]:
        """Copies of all objects of a kind, in the order of their keys."""
        stored = self._objects.get(plural, {})
        return {key: copy.deepcopy(stored[key]) for key in sorted(stored)}

    def page(self, plural: str, selects: Callable[[JsonObject], bool], limit: int, onward: str) -> JsonObject:
        """A list, or a page of one: `onward` is the key after which it goes on; 0 means no limit."""
        chosen = {key: one for key, one in self.all(plural).items() if key > onward and selects(one)}
        keys = list(chosen)[: limit or None]
        metadata = {"resourceVersion": str(self.revision)}
        if len(keys) < len(chosen):
            metadata["continue"] = keys[-1]
        return {"kind": "List", "metadata": metadata, "items": [chosen[key] for key in keys]}

    def _stored(self, plural: str, key: str) -> JsonObject:
        try:
            return self._objects[plural][key]
        except KeyError:
            raise StatusError(404, "NotFound", f'{plural} "{key}" not found') from None

    def create(self, plural: str, namespace: str, body: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """POST."""
        created = copy.deepcopy(body)
        metadata = created.setdefault("metadata", {})
        if "name" not in metadata:
            metadata["name"] = metadata["generateName"][:58] + uuid.uuid4().hex[:5]
        if namespace:
            metadata["namespace"] = namespace
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        key = "/".join(part for part in (namespace, metadata["name"]) if part)
        if key in self._objects.get(plural, {}):
            raise StatusError(409, "AlreadyExists", f'{plural} "{key}" already exists')
        if dry_run:
            return self._admit(plural, created)
        return self.put(plural, key, created)

    def replace(self, plural: str, key: str, body: JsonObject, subresource: str = "") -> JsonObject:
        """PUT."""
        stored = self._stored(plural, key)
        self.check(plural, key, body["metadata"])
        return self.put(plural, key, _scoped(plural, stored, body, subresource))

    def merge(self, plural: str, key: str, patch: JsonObject, subresource: str = "") -> JsonObject:
        """PATCH with a merge patch."""
        stored = self._patchable(plural, key, patch)
        return self.put(plural, key, _scoped(plural, stored, _merge(stored, patch), subresource))

    def apply(self, plural: str, key: str, body: JsonObject, manager: str, subresource: str = "") -> JsonObject:
        """PATCH with a server-side apply, which makes what is not there, unless the caller names its UID."""
        if key not in self._objects.get(plural, {}) and not subresource:
            if body["metadata"].get("uid"):
                raise StatusError(409, "Conflict", f"uid mismatch: no {plural} {key} was found")
            made = self.create(plural, key.rpartition("/")[0], owned_by(body, manager, body, subresource))
            self._applied[(made["metadata"]["uid"], subresource, manager)] = body
            return made
        stored = self._patchable(plural, key, body)
        slot = (stored["metadata"]["uid"], subresource, manager)
        applied = _apply(stored, body, self._applied.get(slot, {}))
        self._applied[slot] = body
        scoped = _scoped(plural, stored, applied, subresource)
        return self.put(plural, key, owned_by(scoped, manager, body, subresource))

    def check(self, plural: str, key: str, wanted: Mapping[str, Any]) -> None:
        """Raises a conflict unless the stored object has the uid and resourceVersion that are given."""
        metadata = self._stored(plural, key)["metadata"]
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) and wanted[name] != metadata[name]:
                message = f"the {name} in the precondition ({wanted[name]}) is not that of {plural} {key}"
                raise StatusError(409, "Conflict", message)

    def _patchable(self, plural: str, key: str, patch: JsonObject) -> JsonObject:
        stored, metadata = self._stored(plural, key), patch.get("metadata") or {}
        if metadata.get("uid", stored["metadata"]["uid"]) != stored["metadata"]["uid"]:
            raise StatusError(422, "Invalid", "metadata.uid: field is immutable")  # so says the real one, in patches
        self.check(plural, key, metadata)
        return stored

    def delete(self, plural: str, key: str) -> JsonObject:
        """DELETE; answers the object as it was."""
        deleted = copy.deepcopy(self._stored(plural, key))
        del self._objects[plural][key]
        self.revision += 1
        deleted["metadata"]["resourceVersion"] = str(self.revision)
        self._tell(plural, {"type": "DELETED", "object": copy.deepcopy(deleted)})
        return deleted

    def put(self, plural: str, key: str, body: JsonObject) -> JsonObject:
        """Stores an object, with a new version unless nothing changes."""
        before = self._objects.get(plural, {}).get(key)
        after = self._admit(plural, body)
        if before is not None:
            for fixed in ("uid", "resourceVersion", "generation"):
                after["metadata"][fixed] = before["metadata"][fixed]
            if after == before:
                return copy.deepcopy(before)  # nothing changed: no new version, no event
        self.revision += 1
        grown = before is not None and after.get("spec") != before.get("spec")
        after["metadata"]["generation"] = (before["metadata"]["generation"] if before else 1) + grown
        after["metadata"]["resourceVersion"] = str(self.revision)
        self._objects.setdefault(plural, {})[key] = after
        kind = "ADDED" if before is None else "MODIFIED"
        self._tell(plural, {"type": kind, "object": copy.deepcopy(after)})
        return copy.deepcopy(after)

    def _admit(self, plural: str, body: JsonObject) -> JsonObject:
        admitted = copy.deepcopy(body)
        if plural == "resourceslices":
            dropped = {name for gate in self.disabled_gates for name in _DEVICE_FIELDS[gate]}
            for device in admitted["spec"].get("devices") or ():
                for owner in (device, *(device.get("capacity") or {}).values()):
                    for name in dropped & set(owner):
                        del owner[name]
                for taint in device.get("taints") or ():
                    taint.setdefault("timeAdded", "2026-01-01T00:00:00Z")
        for change in self.admission:
            admitted = change(plural, admitted)
        return admitted


def owned_by(
    subject: JsonObject, manager: str, fields: JsonObject, subresource: str = "", operation: str = "Apply"
) -> JsonObject:
    """The object with a note in managedFields that `manager` wrote such fields; who wrote them before is not noted."""
    metadata = subject["metadata"]
    owned = {key: value for key, value in fields.items() if key in {"spec", "status"}}
    entry = {"manager": manager, "operation": operation, "time": "2026-01-01T00:00:00Z", "fieldsV1": _fields_v1(owned)}
    if subresource:
        entry["subresource"] = subresource
    same = ("manager", "operation", "subresource")
    others = [one for one in metadata.get("managedFields", ()) if any(one.get(key) != entry.get(key) for key in same)]
    return {**subject, "metadata": {**metadata, "managedFields": [*others, entry]}}


def _fields_v1(fields: Any) -> JsonObject:
    return {f"f:{key}": _fields_v1(value) for key, value in fields.items()} if isinstance(fields, dict) else {}


def _scoped(plural: str, before: JsonObject, after: JsonObject, subresource: str) -> JsonObject:
    """Status is written only through its subresource, and everything else only past it."""
    if plural not in _WITH_STATUS:
        return after
    base, status = (before, after) if subresource == "status" else (after, before)
    scoped = {name: value for name, value in base.items() if name != "status"}
    return scoped | ({"status": status["status"]} if "status" in status else {})


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _apply(target: Any, wanted: Any, formerly: Any, name: str = "") -> Any:
    """What the manager wants laid over what is there, less what it wanted the last time and wants no longer."""
    if isinstance(wanted, dict):
        there, before = _as_dict(target), _as_dict(formerly)
        kept = {key: value for key, value in there.items() if key in wanted or key not in before}
        return kept | {key: _apply(kept.get(key), value, before.get(key), key) for key, value in wanted.items()}
    if isinstance(wanted, list) and name in _LIST_KEYS:
        keys = _LIST_KEYS[name]
        there, before, now = _by_key(target, keys), _by_key(formerly, keys), _by_key(wanted, keys)
        kept = {key: value for key, value in there.items() if key in now or key not in before}
        return list((kept | {key: _apply(kept.get(key), one, before.get(key)) for key, one in now.items()}).values())
    return copy.deepcopy(wanted)


def _as_dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _by_key(items: Any, keys: tuple[str, ...]) -> dict[Any, Any]:
    return {tuple(item.get(key) for key in keys): item for item in items or ()}

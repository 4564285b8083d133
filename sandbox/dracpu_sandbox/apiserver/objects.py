"""Implements the verbs that create, read, change and delete objects.

All functions are synchronous, so that no other request can change an object while a verb reads and writes it.
"""

import base64
import binascii
import json
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

from dracpu_sandbox.apiserver import deletion as deleting
from dracpu_sandbox.apiserver import ownership, refusal, strategies
from dracpu_sandbox.apiserver.deletion import Deletion
from dracpu_sandbox.apiserver.fieldsets import shape_of
from dracpu_sandbox.apiserver.kinds.admission import admit, unknown_fields
from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.ownership import Manager, Operation, Shares
from dracpu_sandbox.apiserver.refusal import Cause, RefusedError
from dracpu_sandbox.apiserver.selectors import Predicate, everything
from dracpu_sandbox.apiserver.store import Key, Store, Stored

JsonObject = dict[str, Any]

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"  # of generated names, as in Kubernetes
_LONGEST_PREFIX: Final = 58
_PRESENT: Final = -1  # in the token of a page: not the revision of the former pages
_IDENTIFYING: Final = {"name", "namespace", "resourceVersion", "uid", "managedFields"}


class Admit(Protocol):
    """Fills in defaults, drops unknown fields, and refuses invalid objects."""

    def __call__(self, kind: Kind, new: JsonObject, old: JsonObject | None, *, subresource: str = "") -> JsonObject: ...


@dataclass(frozen=True, slots=True)
class Writing:
    """The options of a write."""

    manager: str = "unknown"
    dry_run: bool = False
    force: bool = False  # an apply takes fields from other managers
    validation: Literal["Strict", "Warn", "Ignore"] = "Ignore"  # of unknown fields


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a write."""

    stored: Stored
    created: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, and the token for the next part."""

    stored: list[Stored]
    revision: int
    next_token: str = ""

    @property
    def metadata(self) -> JsonObject:
        """Returns the metadata of the list."""
        return {"resourceVersion": str(self.revision), **({"continue": self.next_token} if self.next_token else {})}


class Objects:
    """All objects of all kinds."""

    def __init__(self, store: Store, registry: Registry, *, admit: Admit = admit) -> None:
        self.store = store
        self.registry = registry
        self._admit = admit

    # Reading

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Returns an object; raises RefusedError when it does not exist."""
        stored = self.store.get(kind.storage, (namespace, name))
        if stored is None:
            raise refusal.not_found(kind, name)
        return stored

    def list(
        self, kind: Kind, namespace: str = "", selects: Predicate = everything, *, limit: int = 0, token: str = ""
    ) -> Page:
        """Lists the selected objects; with the token of a page, lists the page that follows it."""
        revision, after = _read_token(token) if token else (_PRESENT, None)
        if revision in (_PRESENT, self.store.revision):
            revision, found = self.store.revision, self.store.all(kind.storage)
        else:
            try:
                found = self.store.all_at(kind.storage, revision)
            except RefusedError:
                raise refusal.expired_page(_token(_PRESENT, after)) from None
        chosen = [
            stored
            for stored in found
            if (not namespace or stored.key[0] == namespace)
            and (after is None or stored.key > after)
            and selects(stored.object)
        ]
        if not limit or len(chosen) <= limit:
            return Page(chosen, revision)
        return Page(chosen[:limit], revision, _token(revision, chosen[limit - 1].key))

    # Writing

    def create(self, kind: Kind, namespace: str, body: JsonObject, writing: Writing) -> Written:
        """Creates an object, as POST does."""
        body = _identified(kind, namespace, "", body)
        self._check_place(kind, namespace, body)
        warnings = self._unknown(kind, body, writing)
        name = self._free_name(kind, namespace, body)
        new = strategies.new_object(kind, namespace, name, body, uid=str(uuid.uuid4()), now=timestamp())
        return Written(self._write(kind, None, new, "", writing), created=True, warnings=warnings)

    def replace(
        self, kind: Kind, namespace: str, name: str, body: JsonObject, writing: Writing, subresource: str = ""
    ) -> Written:
        """Replaces an object, as PUT does."""
        body = _identified(kind, namespace, name, body)
        live = self.get(kind, namespace, name)
        sent, uid = body["metadata"], live.object["metadata"]["uid"]
        if sent.get("uid") not in {None, "", uid}:
            why = f"Precondition failed: UID in precondition: {sent['uid']}, UID in object meta: {uid}"
            raise refusal.conflict(kind, name, why)
        if not sent.get("resourceVersion") and strategies.needs_version(kind):
            cause = Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise refusal.invalid(kind, name, cause)
        warnings = self._unknown(kind, body, writing)
        new = strategies.with_allowed_changes(kind, kind.from_stored(live.object), body, subresource)
        return Written(self._write(kind, live, new, subresource, writing), warnings=warnings)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[JsonObject], Any],
        writing: Writing,
        subresource: str = "",
    ) -> Written:
        """Changes an object, as PATCH does; `change` returns the new object for the stored object."""
        live = self.get(kind, namespace, name)
        shown = kind.from_stored(live.object)
        changed = _identified(kind, namespace, name, change(shown))
        warnings = self._unknown(kind, changed, writing, patched=True)
        new = strategies.with_allowed_changes(kind, shown, changed, subresource)
        return Written(self._write(kind, live, new, subresource, writing), warnings=warnings)

    def apply(
        self, kind: Kind, namespace: str, name: str, config: JsonObject, writing: Writing, subresource: str = ""
    ) -> Written:
        """Applies a configuration on the server's side; creates the object when it does not exist."""
        config = _identified(kind, namespace, name, config)
        config = _only_status(config) if subresource == "status" else _without_status(kind, config)
        if config["metadata"].get("managedFields"):
            raise refusal.bad_request("metadata.managedFields must be nil")
        if unknown := unknown_fields(kind, config):
            raise _undeclared(kind, namespace, name, unknown)
        live = self.store.get(kind.storage, (namespace, name))
        if live is None:
            return self._apply_new(kind, namespace, name, config, writing, subresource)
        shown = kind.from_stored(live.object)
        outcome = self._merged(kind, shown, config, writing, subresource)
        new = strategies.with_allowed_changes(kind, shown, outcome.object, subresource)
        return Written(self._write(kind, live, new, subresource, writing, outcome.shares))

    def _apply_new(
        self, kind: Kind, namespace: str, name: str, config: JsonObject, writing: Writing, subresource: str
    ) -> Written:
        if subresource:
            raise refusal.not_found(kind, name)
        if uid := config["metadata"].get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise refusal.conflict(kind, name, why)
        self._check_place(kind, namespace, config)
        new = strategies.new_object(kind, namespace, name, config, uid=str(uuid.uuid4()), now=timestamp())
        shares = self._merged(kind, {}, config, writing, "").shares
        return Written(self._write(kind, None, new, "", writing, shares), created=True)

    def _merged(
        self, kind: Kind, shown: JsonObject, config: JsonObject, writing: Writing, subresource: str
    ) -> ownership.Applied:
        manager = _manager(kind, writing, "Apply", subresource)
        shares, shape = ownership.decode_shares(shown), shape_of(kind)
        return ownership.applied(shown, config, shares, manager, shape, timestamp(), force=writing.force)

    def delete(self, kind: Kind, namespace: str, name: str, deletion: Deletion) -> tuple[Stored, bool]:
        """Deletes an object; returns its present or its last state, and whether it is removed."""
        live = self.get(kind, namespace, name)
        deleting.check(kind, live.object, deletion)
        deleted = deleting.marked(kind, live.object, deletion, datetime.now(UTC))
        gone = deleting.is_removable(deleted)
        if deletion.dry_run:
            return live, gone
        if gone:
            return self._remove(kind, live, live.object), True
        if deleted == live.object:
            return live, False
        return self.store.put(kind.storage, live.key, deleted), False

    def _write(
        self,
        kind: Kind,
        live: Stored | None,
        new: JsonObject,
        subresource: str,
        writing: Writing,
        shares: Shares | None = None,
    ) -> Stored:
        """Checks an object and stores it, unless nothing changes. An apply passes the `shares` that it has computed."""
        old = None if live is None else kind.from_stored(live.object)
        new = self._admit(kind, new, old, subresource=subresource)
        if shares is None:
            before, manager = ownership.decode_shares(old or {}), _manager(kind, writing, "Update", subresource)
            shares = ownership.updated(old or {}, new, before, manager, shape_of(kind), timestamp())
        if old is not None:
            new = strategies.with_generation(kind, old, new)
        new = _with_shares(new, shares)
        if live is not None and old is not None and _same(old, new):
            return live
        if writing.dry_run:
            return Stored(new)
        if kind.storage == strategies.CRDS and (old is None or new.get("spec") != old.get("spec")):
            self.registry.serve(new)
            new = {**new, "status": self.registry.crd_status(new)}
        if live is not None and deleting.is_removable(new):
            return self._remove(kind, live, kind.to_stored(new))
        key = (new["metadata"].get("namespace", ""), new["metadata"]["name"])
        return self.store.put(kind.storage, key, kind.to_stored(new))

    def _remove(self, kind: Kind, live: Stored, last: JsonObject) -> Stored:
        if kind.storage == strategies.CRDS:
            self.registry.withdraw(live.key[1])
        return self.store.remove(kind.storage, live.key, last)

    # Checks

    def _check_place(self, kind: Kind, namespace: str, body: JsonObject) -> None:
        """Refuses an object whose namespace does not exist, or whose namespace or definition is being deleted."""
        name = str(body["metadata"].get("name") or "")
        definition = self.store.get(strategies.CRDS, ("", kind.storage))
        if definition is not None and "deletionTimestamp" in definition.object["metadata"]:
            why = "create not allowed while custom resource definition is terminating"
            raise refusal.forbidden(kind, name, why)
        if not kind.namespaced:
            return
        home = self.store.get(strategies.NAMESPACES, ("", namespace))
        if home is None:
            message = f'namespaces "{namespace}" not found'
            raise refusal.RefusedError(404, "NotFound", message, details={"name": namespace, "kind": "namespaces"})
        if "deletionTimestamp" in home.object["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise refusal.forbidden(kind, name, why)

    def _free_name(self, kind: Kind, namespace: str, body: JsonObject) -> str:
        metadata = body["metadata"]
        if name := metadata.get("name"):
            if self.store.get(kind.storage, (namespace, str(name))) is not None:
                raise refusal.already_exists(kind, name)
            return str(name)
        if not (prefix := metadata.get("generateName")):
            cause = Cause("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")
            raise refusal.invalid(kind, "", cause)
        while True:
            name = str(prefix)[:_LONGEST_PREFIX] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
            if self.store.get(kind.storage, (namespace, name)) is None:
                return name

    def _unknown(self, kind: Kind, body: JsonObject, writing: Writing, *, patched: bool = False) -> tuple[str, ...]:
        """Returns the warnings about unknown fields."""
        if writing.validation == "Ignore":
            return ()
        unknown = unknown_fields(kind, body)
        if unknown and writing.validation == "Strict":
            raise refusal.unknown_fields(kind, unknown, patched=patched)
        return tuple(unknown)


def _identified(kind: Kind, namespace: str, name: str, body: Any) -> JsonObject:
    """Adds the kind, name and namespace of the URL to the body; raises RefusedError when the body has others."""
    metadata = (body.get("metadata") or {}) if isinstance(body, dict) else None
    if not isinstance(metadata, dict):
        raise refusal.bad_request("the body and its metadata must be objects")
    home = namespace if kind.namespaced else ""
    for field, sent, expected in (
        ("API version", body.get("apiVersion"), kind.api_version),
        ("kind", body.get("kind"), kind.kind),
        ("name", metadata.get("name"), name),
        ("namespace", metadata.get("namespace"), home),
    ):
        if sent and expected and sent != expected:
            raise refusal.bad_request(f"the {field} of the object ({sent}) does not match the request ({expected})")
    metadata = metadata | ({"name": name} if name else {}) | ({"namespace": home} if home else {})
    return {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def _undeclared(kind: Kind, namespace: str, name: str, unknown: list[str]) -> refusal.RefusedError:
    """Returns the error for applied fields that the schema lacks; `unknown` has texts like: unknown field "spec.x"."""
    fields = ", ".join(f".{text.partition(chr(34))[2].rstrip(chr(34))}" for text in unknown)
    what = f"{namespace}/{name}; {kind.api_version}, Kind={kind.kind}"
    message = f"failed to create typed patch object ({what}): {fields}: field not declared in schema"
    return refusal.RefusedError(500, "", message)


def _manager(kind: Kind, writing: Writing, operation: Operation, subresource: str) -> Manager:
    return Manager(writing.manager, operation, kind.api_version, subresource)


def _only_status(config: JsonObject) -> JsonObject:
    identity = {name: value for name, value in config["metadata"].items() if name in _IDENTIFYING}
    status = {"status": config["status"]} if "status" in config else {}
    return {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": identity, **status}


def _without_status(kind: Kind, config: JsonObject) -> JsonObject:
    hidden = {"status"} if "status" in kind.subresources else set()
    return {name: value for name, value in config.items() if name not in hidden}


def _with_shares(new: JsonObject, shares: Shares) -> JsonObject:
    metadata = {name: value for name, value in new["metadata"].items() if name != "managedFields"}
    entries = ownership.encode_shares(shares)
    return {**new, "metadata": metadata | ({"managedFields": entries} if entries else {})}


def _same(old: JsonObject, new: JsonObject) -> bool:
    """Returns whether two states differ only in the times of their managers."""
    return _timeless(old) == _timeless(new)


def _timeless(stored: JsonObject) -> JsonObject:
    entries = {
        json.dumps({**entry, "time": "", "apiVersion": ""}, sort_keys=True)
        for entry in stored["metadata"].get("managedFields") or ()
    }
    return {**stored, "metadata": {**stored["metadata"], "managedFields": entries}}


def timestamp() -> str:
    """Returns the current time in the format of objects."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _token(revision: int, last: Key | None) -> str:
    return base64.urlsafe_b64encode(json.dumps([revision, *(last or ("", ""))]).encode()).decode()


def _read_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        revision, namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except (ValueError, binascii.Error):
        raise refusal.bad_request(f"the token {token!r} is not valid: list again without a token") from None
    return int(revision), (namespace, name)

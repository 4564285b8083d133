"""Field ownership: computes `managedFields` after a write, and the object after a server-side apply.

The rules are those of Kubernetes. A write takes the fields that it changes from all other managers. An apply owns the
fields that it names. It is refused when it would change a field of another manager, unless it is forced. A field that
the manager's last apply named, and its new apply omits, is removed when no other manager owns it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.fieldsets import (
    NO_FIELDS,
    FieldPath,
    FieldSet,
    Shape,
    compare,
    decode_fields,
    describe,
    encode_fields,
    field_set,
    with_parents,
    without_fields,
)
from dracpu_sandbox.apiserver.merging import merged
from dracpu_sandbox.apiserver.refusal import Cause, RefusedError

JsonObject = dict[str, Any]
Operation = Literal["Apply", "Update"]

_UNOWNED_METADATA: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
)
_UNOWNED: Final = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in _UNOWNED_METADATA)}
)


@dataclass(frozen=True, slots=True)
class Manager:
    """A client that writes objects with an operation."""

    name: str
    operation: Operation
    api_version: str
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Returns the manager's identity, which does not include the API version of an apply."""
        version = "" if self.operation == "Apply" else self.api_version
        return self.name, self.operation, version, self.subresource

    def __str__(self) -> str:
        subresource = f' with subresource "{self.subresource}"' if self.subresource else ""
        version = f" using {self.api_version}" if self.operation == "Update" else ""
        return f'"{self.name}"{subresource}{version}'


@dataclass(frozen=True, slots=True)
class Share:
    """The fields that a manager owns, and the time of its last change."""

    manager: Manager
    fields: FieldSet
    time: str


Shares = Mapping[tuple[str, str, str, str], Share]


def decode_shares(stored: JsonObject) -> Shares:
    """Reads an object's `metadata.managedFields`."""
    shares = (
        Share(
            Manager(
                entry.get("manager", ""), entry["operation"], entry.get("apiVersion", ""), entry.get("subresource", "")
            ),
            decode_fields(entry.get("fieldsV1") or {}),
            entry.get("time", ""),
        )
        for entry in stored.get("metadata", {}).get("managedFields") or ()
    )
    return {share.manager.key: share for share in shares}


def encode_shares(shares: Shares) -> list[JsonObject]:
    """Renders `metadata.managedFields`: applies first, then by time."""
    ordered = sorted(shares.values(), key=lambda share: (share.manager.operation, share.time, share.manager.key))
    return [_encode(share) for share in ordered]


def _encode(share: Share) -> JsonObject:
    manager = share.manager
    entry: JsonObject = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": share.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": encode_fields(share.fields),
    }
    return {**entry, "subresource": manager.subresource} if manager.subresource else entry


def updated(live: JsonObject, new: JsonObject, shares: Shares, writer: Manager, shape: Shape, now: str) -> Shares:
    """Returns the shares after a write other than an apply; `live` is empty for a new object."""
    difference = compare(live, new, shape)
    taken = _ownable(difference.added | difference.modified, writer, shape)
    left = _without_lost(shares, taken | difference.removed)
    if not taken:
        return left
    before = shares.get(writer.key)
    kept = before.fields - difference.removed if before else NO_FIELDS
    return {**left, writer.key: Share(writer, kept | taken, now)}


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of an apply."""

    object: JsonObject
    shares: Shares


def applied(
    live: JsonObject, config: JsonObject, shares: Shares, writer: Manager, shape: Shape, now: str, *, force: bool
) -> Applied:
    """Applies a configuration; raises RefusedError for conflicts. `live` is empty for a new object."""
    named = _ownable(field_set(config, shape), writer, shape)
    before = shares.get(writer.key)
    mine = before if before and before.fields == named else Share(writer, named, now)
    others = {key: share for key, share in shares.items() if key != writer.key}
    result = merged(live, config, shape)
    if before:
        result = _pruned(result, before.fields, [mine, *others.values()], shape)
    difference = compare(live, result, shape)
    changed = difference.added | difference.modified
    conflicts = [(share.manager, path) for share in others.values() for path in share.fields & changed]
    if conflicts and not force:
        raise _conflict(conflicts)
    left = _without_lost(others, changed | difference.removed)
    return Applied(result, {**left, writer.key: mine} if named else left)


def _pruned(result: JsonObject, formerly: FieldSet, shares: Sequence[Share], shape: Shape) -> JsonObject:
    """Removes the fields that the manager owned and no longer names, unless another manager owns them.

    A field without an owner (a default) stays, unless the field that contains it is removed.
    """
    there = with_parents(field_set(result, shape))
    former = with_parents(formerly)
    owned = with_parents(path for share in shares for path in share.fields)
    stays = with_parents(field_set(without_fields(result, former, shape), shape)) | owned
    kept = with_parents(field_set(without_fields(result, there - stays, shape), shape))
    pruned: JsonObject = without_fields(result, (there - kept) & former, shape)
    return pruned


def _ownable(fields: FieldSet, writer: Manager, shape: Shape) -> FieldSet:
    """Returns the fields that the writer can own."""
    if writer.subresource == "status":
        return frozenset(path for path in fields if path[0] == "f:status")
    if shape.status_apart:
        fields = frozenset(path for path in fields if path[0] != "f:status")
    return fields - _UNOWNED


def _without_lost(shares: Shares, lost: FieldSet) -> Shares:
    left = {key: replace(share, fields=share.fields - lost) for key, share in shares.items()}
    return {key: share for key, share in left.items() if share.fields}


def _conflict(conflicts: Iterable[tuple[Manager, FieldPath]]) -> RefusedError:
    named = sorted((str(manager), describe(path)) for manager, path in conflicts)
    causes = [Cause(field, f"conflict with {manager}", "FieldManagerConflict") for manager, field in named]
    count = "1 conflict" if len(causes) == 1 else f"{len(causes)} conflicts"
    listed = ", ".join(f"{cause.message}: {cause.field}" for cause in causes)
    return RefusedError(409, "Conflict", f"Apply failed with {count}: {listed}", causes=causes)
